//! Compares the vectors of `SentenceModel` with those of another implementation (`tools/sentence-model`).

#![cfg(feature = "local-model")]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::path::{Path, PathBuf};

use bascule_search::{Embedding, ModelFiles, SentenceModel};

fn files(folder: &Path) -> ModelFiles {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    ModelFiles {
        config: text("config.json").unwrap(),
        tokenizer: text("tokenizer.json"),
        vocabulary: text("vocab.txt"),
        weights: std::fs::read(folder.join("model.safetensors")).unwrap(),
        pooling: text("1_Pooling/config.json"),
        sentences: text("sentence_bert_config.json"),
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

/// The folder with the files of all-MiniLM-L6-v2, which `scripts/test-env` installs.
fn real_model() -> PathBuf {
    let installed = std::env::var_os("BASCULE_TESTENV")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testenv"), PathBuf::from);
    let folder = installed.join("model/files");
    assert!(folder.is_dir(), "`{}` is missing: run scripts/test-env", folder.display());
    folder
}

fn check_vectors(model: &SentenceModel, expected: &str, lowest: f32) {
    let expected: Vec<(String, Vec<f32>)> =
        serde_json::from_slice(&std::fs::read(fixture(expected)).unwrap()).unwrap();
    assert!(expected.len() >= 10);
    for (text, vector) in expected {
        let similarity = model.embed(&text).cosine(&Embedding::new(vector));
        assert!(similarity >= lowest, "{similarity} for {text:?}");
    }
}

// req: SE-01
#[test]
fn tiny_model_gives_the_vectors_of_another_implementation() {
    check_vectors(&SentenceModel::new(&files(&fixture("tiny"))).unwrap(), "tiny-vectors.json", 0.999_99);
}

// req: SE-01
#[test]
fn real_model_gives_the_vectors_of_another_implementation() {
    let folder = real_model();
    let model = SentenceModel::new(&files(&folder)).unwrap();
    check_vectors(&model, "minilm-vectors.json", 0.999);
    let without_json = ModelFiles { tokenizer: None, ..files(&folder) };
    check_vectors(&SentenceModel::new(&without_json).unwrap(), "minilm-vectors.json", 0.999);
}

// req: SE-01
#[test]
fn refuses_models_that_it_cannot_compute() {
    let check = |change: fn(&mut ModelFiles), part: &str| {
        let mut files = files(&fixture("tiny"));
        change(&mut files);
        let Err(error) = SentenceModel::new(&files) else { panic!("accepted: {part}") };
        assert!(error.to_string().contains(part), "{error}");
    };
    check(|files| files.config = "{}".into(), "`config.json`: missing field");
    check(|files| files.config = files.config.replace("\"bert\"", "\"roberta\""), "only `bert` is known");
    check(|files| files.config = files.config.replace("\"gelu\"", "\"relu\""), "only `gelu` is known");
    check(
        |files| files.config = files.config.replace(": 24", ": 25"),
        "25 numbers cannot be shared by 3 heads",
    );
    check(|files| files.config = files.config.replace(": 24", ": 0"), "a size is zero");
    check(
        |files| files.config = files.config.replace(": 40", ": 41"),
        "has the shape [40, 24], not [41, 24]",
    );
    check(
        |files| files.config = files.config.replace("_layers\": 2", "_layers\": 3"),
        "`encoder.layer.2.attention",
    );
    check(|files| files.vocabulary = None, "neither `tokenizer.json` nor `vocab.txt`");
    check(
        |files| files.vocabulary.as_mut().unwrap().push_str("one\nmore\n"),
        "it has 50 pieces, and the model 48",
    );
    check(|files| files.weights.truncate(9), "`model.safetensors`: its header");
    check(|files| files.weights.truncate(20_000), "lies outside of the file");
    check(
        |files| files.pooling = Some(r#"{"pooling_mode_max_tokens":true}"#.into()),
        "`1_Pooling/config.json`: only",
    );
}
