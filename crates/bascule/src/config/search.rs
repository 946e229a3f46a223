//! Reads `bascule.search`: the encoder that ranks tools.

use std::time::Duration;

use bascule_model::Secret;

use super::expand::VariableExpander;
use super::reader::{FieldReader, ObjectReader};
use super::settings::{EncoderSettings, EncoderSource};
use super::transport::expand;
use super::url::ServerUrl;

/// The last part of the address of an embeddings endpoint.
const PATH: &str = "/embeddings";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn read_search(field: FieldReader, variables: &VariableExpander) -> Option<EncoderSettings> {
    let mut object = field.read_object()?;
    let encoder = object.read("encoder", |field| read_encoder(field, variables));
    object.warn_unknown_keys();
    encoder
}

fn read_encoder(field: FieldReader, variables: &VariableExpander) -> Option<EncoderSettings> {
    let mut object = field.read_object()?;
    let source = match object.peek("folder") {
        Some(_) => object.read("folder", |field| read_folder(&field, variables)),
        None => read_endpoint(&mut object, variables),
    };
    let timeout = object.read("timeoutMs", FieldReader::read_millis).unwrap_or(DEFAULT_TIMEOUT);
    object.warn_unknown_keys();
    Some(EncoderSettings { source: source?, timeout })
}

fn read_endpoint(object: &mut ObjectReader, variables: &VariableExpander) -> Option<EncoderSource> {
    for key in ["url", "model"] {
        if object.peek(key).is_none() {
            object.field().error(format!("`{key}` is missing; or name a `folder` with the files of a model"));
        }
    }
    let url = object.read("url", |field| read_url(&field, variables));
    let model = object.read("model", |field| field.read_string().map(str::to_owned));
    let api_key = object.read("apiKey", |field| read_key(&field, variables));
    Some(EncoderSource::Endpoint { url: url?, model: model?, api_key })
}

/// Reads the folder of a model. A program without the feature cannot use one.
fn read_folder(field: &FieldReader, variables: &VariableExpander) -> Option<EncoderSource> {
    let folder = expand(field, field.read_string()?, variables)?;
    if !cfg!(feature = "local-model") {
        field.error("this program was built without local models: build it with the feature `local-model`");
        return None;
    }
    if folder.is_empty() {
        field.error("must be the path of a folder");
        return None;
    }
    Some(EncoderSource::Folder(variables.absolute_path(&folder)))
}

/// Reads the address of the endpoint, or that of its API.
fn read_url(field: &FieldReader, variables: &VariableExpander) -> Option<ServerUrl> {
    let text = expand(field, field.read_secret_string()?, variables)?;
    let (address, query) = text.split_at(text.find('?').unwrap_or(text.len()));
    let address = address.trim_end_matches('/');
    let path = if address.ends_with(PATH) { "" } else { PATH };
    ServerUrl::parse(&format!("{address}{path}{query}")).map_err(|error| field.error(error)).ok()
}

fn read_key(field: &FieldReader, variables: &VariableExpander) -> Option<Secret<String>> {
    let key = expand(field, field.read_secret_string()?, variables)?;
    if key.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
        field.error("must have only visible ASCII characters");
        return None;
    }
    Some(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, settings};
    use super::*;

    fn encoder(text: &str) -> String {
        let text = format!(r#"{{"servers": {{}}, "bascule": {{"search": {{"encoder": {text}}}}}}}"#);
        let EncoderSettings { source, timeout } = settings(&text).bridge.encoder.unwrap();
        match source {
            EncoderSource::Endpoint { url, model, api_key } => {
                format!("{} {model} {api_key:?} {timeout:?}", url.as_str())
            }
            EncoderSource::Folder(folder) => format!("{} {timeout:?}", folder.display()),
        }
    }

    // req: SE-01
    #[test]
    fn reads_an_encoder() {
        assert_eq!(encoder(r#"{"url": "https://h/v1/", "model": "m"}"#), "https://h/v1/embeddings m None 5s");
        assert_eq!(
            encoder(r#"{"url": "http://h/v1/embeddings?v=1", "model": "m", "apiKey": "k", "timeoutMs": 9}"#),
            "http://h/v1/embeddings?v=1 m Some(***) 9ms"
        );
        if cfg!(feature = "local-model") {
            assert_eq!(encoder(r#"{"folder": "/models/mini"}"#), "/models/mini 5s");
        }
    }

    // req: SE-01
    #[test]
    fn reports_wrong_encoders() {
        let wrong = |encoder: &str, expected: &str| {
            check(
                &format!(r#"{{"servers": {{}}, "bascule": {{"search": {{"encoder": {encoder}}}}}}}"#),
                expected,
            );
        };
        wrong(
            r#"{"model": "m"}"#,
            "1:51: bascule.search.encoder: `url` is missing; or name a `folder` with the files of a model",
        );
        let folder = match cfg!(feature = "local-model") {
            true => "must be the path of a folder",
            false => "this program was built without local models: build it with the feature `local-model`",
        };
        wrong(r#"{"folder": ""}"#, &format!("1:62: bascule.search.encoder.folder: {folder}"));
        wrong(
            r#"{"url": "ftp://h", "model": "m", "apiKey": "a b"}"#,
            "1:59: bascule.search.encoder.url: must start with `http://` or `https://`\n\
             1:94: bascule.search.encoder.apiKey: must have only visible ASCII characters",
        );
    }
}
