//! Embeds texts with a small BERT model, such as all-MiniLM-L6-v2, on the processor.
//!
//! [`SentenceModel`] is made from the contents of a model's files: others read them. `tensors` reads the numbers, `tokens` cuts texts,
//! `layers` computes. A text of forty word pieces takes some ten milliseconds with six layers of 384 numbers.

mod layers;
mod tensors;
mod tokens;

use serde::Deserialize;

use crate::Embedding;
use layers::{BertModel, ModelSizes};
use tensors::TensorFile;
use tokens::ModelVocabulary;

/// Larger sizes are refused.
const MAX_SIZE: usize = 1 << 20;
/// The longest sequence of word pieces that is computed: its cost grows with the square.
const MAX_PIECES: usize = 512;

/// The contents of a model's files, as Hugging Face names them.
#[derive(Debug, Default)]
pub struct ModelFiles {
    /// `config.json`
    pub config: String,
    /// `tokenizer.json`
    pub tokenizer: Option<String>,
    /// `vocab.txt`, read if there is no `tokenizer.json`
    pub vocabulary: Option<String>,
    /// `model.safetensors`
    pub weights: Vec<u8>,
    /// `1_Pooling/config.json`; without it the mean of the pieces is taken
    pub pooling: Option<String>,
    /// `sentence_bert_config.json`, which limits the length of texts
    pub sentences: Option<String>,
}

/// A model that turns texts into vectors.
pub struct SentenceModel {
    vocabulary: ModelVocabulary,
    model: BertModel,
    hidden: usize,
    /// The number of word pieces that count.
    max_pieces: usize,
    pooling: Pooling,
}

/// The way from the vectors of pieces to that of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Mean,
    /// The vector of the mark before the text.
    First,
}

/// The files are no model that can be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("`config.json`: {0}")]
    Config(String),
    #[error("`1_Pooling/config.json`: {0}")]
    Pooling(String),
    #[error("the tokenizer: {0}")]
    Tokenizer(String),
    #[error("`model.safetensors`: {0}")]
    Weights(String),
}

#[derive(Deserialize)]
struct ConfigFile {
    model_type: Option<String>,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f32,
}

fn two() -> usize {
    2
}

fn usual_epsilon() -> f32 {
    1e-12
}

#[derive(Deserialize)]
struct PoolingFile {
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
}

#[derive(Deserialize)]
struct SentencesFile {
    max_seq_length: Option<usize>,
}

impl SentenceModel {
    /// Makes a model of the contents of its files.
    pub fn new(files: &ModelFiles) -> Result<Self, ModelError> {
        let sizes = read_sizes(&files.config)?;
        let vocabulary = match (&files.tokenizer, &files.vocabulary) {
            (Some(json), _) => ModelVocabulary::from_json(json),
            (None, Some(lines)) => ModelVocabulary::from_lines(lines),
            (None, None) => {
                Err(ModelError::Tokenizer("there is neither `tokenizer.json` nor `vocab.txt`".into()))
            }
        }?;
        if vocabulary.size() > sizes.vocabulary {
            let (pieces, rows) = (vocabulary.size(), sizes.vocabulary);
            return Err(ModelError::Tokenizer(format!("it has {pieces} pieces, and the model {rows}")));
        }
        let model = BertModel::read(&TensorFile::parse(&files.weights)?, sizes)?;
        let limit =
            files.sentences.as_deref().and_then(|text| serde_json::from_str::<SentencesFile>(text).ok());
        let limit = limit.and_then(|file| file.max_seq_length).unwrap_or(MAX_PIECES);
        let max_pieces = limit.min(sizes.positions).clamp(2, MAX_PIECES);
        let pooling = files.pooling.as_deref().map_or(Ok(Pooling::Mean), Pooling::read)?;
        Ok(Self { vocabulary, model, hidden: sizes.hidden, max_pieces, pooling })
    }

    /// Returns the vector of a text. A long text is cut.
    pub fn embed(&self, text: &str) -> Embedding {
        let tokens = self.vocabulary.tokens(text, self.max_pieces);
        let states = self.model.run(&tokens);
        match self.pooling {
            Pooling::First => Embedding::new(states[..self.hidden].to_vec()),
            Pooling::Mean => {
                let mut sum = vec![0.0; self.hidden];
                for state in states.chunks_exact(self.hidden) {
                    sum.iter_mut().zip(state).for_each(|(sum, number)| *sum += number);
                }
                Embedding::new(sum)
            }
        }
    }
}

impl Pooling {
    fn read(text: &str) -> Result<Self, ModelError> {
        match serde_json::from_str(text) {
            Ok(PoolingFile { pooling_mode_mean_tokens: true, pooling_mode_cls_token: false }) => {
                Ok(Self::Mean)
            }
            Ok(PoolingFile { pooling_mode_cls_token: true, pooling_mode_mean_tokens: false }) => {
                Ok(Self::First)
            }
            Ok(_) => {
                Err(ModelError::Pooling("only the mean of the pieces and the first piece are known".into()))
            }
            Err(error) => Err(ModelError::Pooling(error.to_string())),
        }
    }
}

fn read_sizes(text: &str) -> Result<ModelSizes, ModelError> {
    let config: ConfigFile =
        serde_json::from_str(text).map_err(|error| ModelError::Config(error.to_string()))?;
    let known = [
        ("model_type", &config.model_type, "bert"),
        ("hidden_act", &config.hidden_act, "gelu"),
        ("position_embedding_type", &config.position_embedding_type, "absolute"),
    ];
    for (key, value, known) in known {
        if let Some(other) = value.as_deref().filter(|value| *value != known) {
            let reason = format!("`{key}` is `{other}`; only `{known}` is known");
            return Err(ModelError::Config(reason));
        }
    }
    let sizes = ModelSizes {
        hidden: config.hidden_size,
        layers: config.num_hidden_layers,
        heads: config.num_attention_heads,
        intermediate: config.intermediate_size,
        vocabulary: config.vocab_size,
        positions: config.max_position_embeddings,
        types: config.type_vocab_size,
        epsilon: config.layer_norm_eps,
    };
    check_sizes(&sizes)?;
    Ok(sizes)
}

fn check_sizes(sizes: &ModelSizes) -> Result<(), ModelError> {
    let all = [
        sizes.hidden,
        sizes.layers,
        sizes.heads,
        sizes.intermediate,
        sizes.vocabulary,
        sizes.positions,
        sizes.types,
    ];
    if all.iter().any(|size| !(1..=MAX_SIZE).contains(size)) {
        return Err(ModelError::Config("a size is zero or too large".into()));
    }
    if !sizes.hidden.is_multiple_of(sizes.heads) {
        let reason = format!("{} numbers cannot be shared by {} heads", sizes.hidden, sizes.heads);
        return Err(ModelError::Config(reason));
    }
    Ok(())
}
