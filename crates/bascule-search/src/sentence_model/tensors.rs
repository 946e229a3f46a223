//! Reads the numbers of a model from a file in the format safetensors: the length of a JSON header (u64), the header, the data.

use std::collections::HashMap;

use serde::Deserialize;

use super::ModelError;

/// A longer header is refused.
const MAX_HEADER: u64 = 16 << 20;

/// The tensors of a file, by name.
pub(super) struct TensorFile<'f> {
    tensors: HashMap<String, TensorEntry>,
    data: &'f [u8],
}

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

impl<'f> TensorFile<'f> {
    pub(super) fn parse(file: &'f [u8]) -> Result<Self, ModelError> {
        let wrong = |reason: String| ModelError::Weights(reason);
        let (length, rest) = file.split_first_chunk::<8>().ok_or_else(|| wrong("it has no header".into()))?;
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER || length > rest.len() as u64 {
            return Err(wrong(format!("its header would have {length} bytes")));
        }
        let (header, data) = rest.split_at(length as usize);
        let parsed: Result<HashMap<String, serde_json::Value>, _> = serde_json::from_slice(header);
        let mut tensors = HashMap::new();
        for (name, entry) in parsed.map_err(|error| wrong(format!("its header: {error}")))? {
            if name != "__metadata__" {
                let entry =
                    serde_json::from_value(entry).map_err(|error| wrong(format!("`{name}`: {error}")))?;
                tensors.insert(name, entry);
            }
        }
        Ok(Self { tensors, data })
    }

    /// Returns true if the file has a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the numbers of a tensor, which must have this shape.
    pub(super) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let wrong = |reason: String| ModelError::Weights(format!("`{name}` {reason}"));
        let entry = self.tensors.get(name).ok_or_else(|| wrong("is missing".into()))?;
        if entry.shape != shape {
            return Err(wrong(format!("has the shape {:?}, not {shape:?}", entry.shape)));
        }
        let (start, end) = entry.data_offsets;
        let bytes = self.data.get(start..end).ok_or_else(|| wrong("lies outside of the file".into()))?;
        let convert: fn(&[u8]) -> f32 = match entry.dtype.as_str() {
            "F32" => |bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            "F16" => |bytes| from_half(u16::from_le_bytes([bytes[0], bytes[1]])),
            "BF16" => |bytes| f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16),
            other => {
                return Err(wrong(format!("has numbers of the type {other}; F32, F16 and BF16 are known")));
            }
        };
        let size = if entry.dtype == "F32" { 4 } else { 2 };
        let count = shape.iter().try_fold(size, |product: usize, length| product.checked_mul(*length));
        if count != Some(bytes.len()) {
            return Err(wrong(format!("has {} bytes, which do not fit its shape", bytes.len())));
        }
        Ok(bytes.chunks_exact(size).map(convert).collect())
    }
}

/// Converts a number of 16 bits: sign, 5 bits of exponent, 10 of fraction.
fn from_half(half: u16) -> f32 {
    let (exponent, fraction) = ((half >> 10) & 0x1f, f32::from(half & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2.0_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2.0_f32.powi(i32::from(exponent) - 15),
    };
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    fn numbers(header: &str, data: &[u8], shape: &[usize]) -> Result<Vec<f32>, String> {
        let file = file(header, data);
        let numbers = TensorFile::parse(&file).and_then(|file| file.numbers("t", shape));
        numbers.map_err(|error| error.to_string())
    }

    // req: SE-01
    #[test]
    fn reads_numbers_of_each_type() {
        let tensor = |dtype: &str, end: usize| {
            format!(
                r#"{{"__metadata__":{{"a":"b"}},"t":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,{end}]}}}}"#
            )
        };
        let data = [1.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat();
        assert_eq!(numbers(&tensor("F32", 8), &data, &[2]).unwrap(), [1.5, -2.0]);
        assert_eq!(numbers(&tensor("F16", 4), &[0x00, 0x3e, 0x00, 0xc0], &[2]).unwrap(), [1.5, -2.0]);
        assert_eq!(
            numbers(&tensor("F16", 4), &[0x01, 0x00, 0x00, 0xfc], &[2]).unwrap(),
            [2.0_f32.powi(-24), f32::NEG_INFINITY]
        );
        assert_eq!(numbers(&tensor("BF16", 4), &[0xc0, 0x3f, 0x00, 0xc0], &[2]).unwrap(), [1.5, -2.0]);
    }

    // req: SE-01
    #[test]
    fn refuses_damaged_files() {
        let check = |header: &str, data: &[u8], part: &str| {
            let error = numbers(header, data, &[2]).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(
            r#"{"t":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#,
            &[0; 12],
            "has the shape [3], not [2]",
        );
        check(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}"#, &[0; 8], "outside of the file");
        check(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, &[0; 8], "outside of the file");
        check(r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, &[0; 8], "do not fit its shape");
        check(r#"{"t":{"dtype":"I64","shape":[2],"data_offsets":[0,8]}}"#, &[0; 8], "type I64");
        check(r#"{"u":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, &[0; 8], "is missing");
        check(r#"{"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}"#, &[0; 8], "`t`");
        check("{", &[], "its header");
        for bytes in [&[][..], &[1, 2, 3], &u64::MAX.to_le_bytes()] {
            assert!(TensorFile::parse(bytes).is_err());
        }
    }
}
