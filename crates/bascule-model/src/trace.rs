//! The identity of a span in a trace, as W3C Trace Context defines it.

/// The id of a trace: 128 bits, not zero. Its text is 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u128);

/// The id of a span: 64 bits, not zero. Its text is 16 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u64);

/// The position of a span in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanContext {
    pub trace_id: TraceId,
    pub span_id: SpanId,
    pub parent: Option<SpanId>,
}

/// The trace and the span of a `traceparent`, which the next span has as its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    pub trace_id: TraceId,
    pub span_id: SpanId,
}

impl TraceId {
    /// Parses 32 lower-case hexadecimal digits that are not all zero.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = parse_lower_hex(text, 32)?;
        (bits != 0).then_some(Self(bits))
    }
}

impl SpanId {
    /// Parses 16 lower-case hexadecimal digits that are not all zero.
    pub fn parse(text: &str) -> Option<Self> {
        let bits = parse_lower_hex(text, 16)? as u64;
        (bits != 0).then_some(Self(bits))
    }
}

impl TraceParent {
    /// Parses `version-trace-parent-flags`. A later version may have further parts.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let version =
            parts.next().filter(|part| parse_lower_hex(part, 2).is_some_and(|bits| bits != 0xff))?;
        let (trace_id, span_id) = (TraceId::parse(parts.next()?)?, SpanId::parse(parts.next()?)?);
        parse_lower_hex(parts.next()?, 2)?;
        (version != "00" || parts.next().is_none()).then_some(Self { trace_id, span_id })
    }
}

impl SpanContext {
    /// Returns the parent of the spans below this one.
    pub fn as_parent(&self) -> TraceParent {
        TraceParent { trace_id: self.trace_id, span_id: self.span_id }
    }
}

/// Parses exactly `length` digits: 32, or at most 16.
fn parse_lower_hex(text: &str, length: usize) -> Option<u128> {
    /// The value of each byte as a digit. Other bytes have bits above it.
    const VALUES: [u8; 256] = {
        let mut values = [0xff; 256];
        let mut value = 0;
        while value < 16 {
            values[b"0123456789abcdef"[value] as usize] = value as u8;
            value += 1;
        }
        values
    };
    let text = Some(text.as_bytes()).filter(|text| text.len() == length)?;
    let (mut bits, mut seen) = (0, 0);
    // In halves: a shift of 128 bits takes several instructions.
    for half in text.chunks(16) {
        let mut low = 0_u64;
        for byte in half {
            let value = VALUES[*byte as usize];
            seen |= value;
            low = low << 4 | u64::from(value & 15);
        }
        bits = bits << 64 | u128::from(low);
    }
    (seen < 16).then_some(bits)
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::fmt::Display for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    // req: TR-01
    #[test]
    fn parses_trace_parents_of_all_versions() {
        let parent = TraceParent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
        assert_eq!(parent.trace_id.to_string(), TRACE);
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        assert!(TraceParent::parse(&format!("01-{TRACE}-00f067aa0ba902b7-01-more")).is_some());
    }

    // req: TR-01
    #[test]
    fn refuses_texts_that_are_no_trace_parents() {
        let zero = "0".repeat(32);
        for text in [
            String::new(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{zero}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
