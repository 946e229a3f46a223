//! The messages of an embeddings endpoint.

use serde::Deserialize;
use serde_json::json;

/// Longer vectors are refused.
const MAX_DIMENSIONS: usize = 8_192;

/// A response is not what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidResponse {
    #[error("the response is no list of embeddings: {0}")]
    Syntax(String),
    #[error("the response has {found} vectors for {expected} texts")]
    Count { found: usize, expected: usize },
    #[error("the response has a vector of {0} numbers")]
    Dimensions(usize),
    #[error("the response has vectors of different sizes")]
    Sizes,
}

#[derive(Deserialize)]
struct Response {
    data: Vec<EmbeddingItem>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: usize,
    embedding: Vec<f32>,
}

pub(super) fn request_body(model: &str, texts: &[String]) -> Vec<u8> {
    json!({ "model": model, "input": texts, "encoding_format": "float" }).to_string().into_bytes()
}

/// Returns the vectors in the order of the texts.
pub(super) fn parse_response(body: &[u8], expected: usize) -> Result<Vec<Vec<f32>>, InvalidResponse> {
    let parsed: Result<Response, _> = serde_json::from_slice(body);
    let mut items = parsed.map_err(|error| InvalidResponse::Syntax(error.to_string()))?.data;
    items.sort_by_key(|item| item.index);
    if items.len() != expected || items.iter().enumerate().any(|(at, item)| item.index != at) {
        return Err(InvalidResponse::Count { found: items.len(), expected });
    }
    let dimensions = items.first().map_or(0, |item| item.embedding.len());
    match items.iter().all(|item| item.embedding.len() == dimensions) {
        _ if expected > 0 && !(1..=MAX_DIMENSIONS).contains(&dimensions) => {
            Err(InvalidResponse::Dimensions(dimensions))
        }
        true => Ok(items.into_iter().map(|item| item.embedding).collect()),
        false => Err(InvalidResponse::Sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Result<&[&[f32]], &str>) {
        let found = parse_response(body.as_bytes(), 2).map_err(|error| error.to_string());
        let expected =
            expected.map(|rows| rows.iter().map(|row| row.to_vec()).collect()).map_err(str::to_owned);
        assert_eq!(found, expected, "{body}");
    }

    // req: SE-01
    #[test]
    fn puts_vectors_into_the_order_of_texts() {
        let body =
            r#"{"object":"list","data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2]}]}"#;
        check(body, Ok(&[&[1.0, 2.0], &[3.0, 4.0]]));
    }

    // req: SE-01
    #[test]
    fn refuses_wrong_responses() {
        check(r#"{"data":[]}"#, Err("the response has 0 vectors for 2 texts"));
        check(
            r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
            Err("the response has 2 vectors for 2 texts"),
        );
        check(
            r#"{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}"#,
            Err("the response has a vector of 0 numbers"),
        );
        check(
            r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#,
            Err("the response has vectors of different sizes"),
        );
        assert!(matches!(parse_response(b"<html>", 2), Err(InvalidResponse::Syntax(_))));
    }
}
