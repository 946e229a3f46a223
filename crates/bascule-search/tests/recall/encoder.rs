//! The encoder to measure: the built-in one, or the model in the folder `EVAL_MODEL`.

use std::path::Path;

use bascule_model::ToolDefinition;
use bascule_search::{Embedding, Intent, ModelFiles, SentenceModel, ServerIndex};

pub(crate) enum Encoder {
    BuiltIn,
    Model(Box<SentenceModel>),
}

impl Encoder {
    pub(crate) fn from_environment() -> Self {
        match std::env::var_os("EVAL_MODEL").filter(|folder| !folder.is_empty()) {
            Some(folder) => Self::Model(Box::new(read_model(Path::new(&folder)))),
            None => Self::BuiltIn,
        }
    }

    pub(crate) fn index(&self, server: &str, tools: &[ToolDefinition]) -> ServerIndex {
        match self {
            Self::BuiltIn => ServerIndex::new(server, tools),
            Self::Model(model) => {
                let texts: Vec<String> = tools.iter().map(ServerIndex::encoded_text).collect();
                ServerIndex::with_embeddings(server, tools, &embed_all(model, &texts))
            }
        }
    }

    pub(crate) fn intent(&self, text: &str) -> Intent {
        match self {
            Self::BuiltIn => Intent::new(text),
            Self::Model(model) => {
                let intent = Intent::without_embeddings(text);
                let vectors: Vec<_> = intent.texts().map(|text| model.embed(text)).collect();
                intent.with_embeddings(vectors)
            }
        }
    }
}

fn read_model(folder: &Path) -> SentenceModel {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let files = ModelFiles {
        config: text("config.json").unwrap(),
        tokenizer: text("tokenizer.json"),
        vocabulary: text("vocab.txt"),
        weights: std::fs::read(folder.join("model.safetensors")).unwrap(),
        pooling: text("1_Pooling/config.json"),
        sentences: text("sentence_bert_config.json"),
    };
    SentenceModel::new(&files).unwrap()
}

/// Embeds texts with all processors.
fn embed_all(model: &SentenceModel, texts: &[String]) -> Vec<Embedding> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = texts.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = texts
            .chunks(part)
            .map(|texts| scope.spawn(|| texts.iter().map(|text| model.embed(text)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}
