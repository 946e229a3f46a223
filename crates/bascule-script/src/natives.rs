//! The Rust functions that the prelude calls. Scripts cannot reach them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::{Ctx, Exception, Function, IntoJs, Object, TypedArray, Value};
use serde_json::value::RawValue;
use url::Url;
use url::quirks;

use crate::collation::{Collation, collate, collate_ascii};
use crate::engine::module;
use crate::names;
use crate::state::ScriptState;
use crate::time_zones::TimeZones;
use crate::tool_lookup::{LookupResult, ToolLookup, split_id};
use crate::tool_result::replace_lone_surrogates;
use crate::wire::{self, RefusedToolCall};

/// Adds a function to an object. With `state`, the function owns a clone of the state.
macro_rules! add {
    ($ctx:expr, $object:expr, $name:literal, $function:expr) => {
        $object.set($name, Function::new($ctx.clone(), $function)?)?
    };
    ($ctx:expr, $object:expr, $state:ident, $name:literal, $function:expr) => {{
        let $state = $state.clone();
        add!($ctx, $object, $name, $function)
    }};
}

/// Returns an object with all native functions.
pub(crate) fn natives<'js>(ctx: &Ctx<'js>, state: &Rc<ScriptState>) -> rquickjs::Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    add_execution(ctx, &object, state)?;
    add_lookup(ctx, &object, state)?;
    add_encoding(ctx, &object)?;
    add_random(ctx, &object)?;
    add_urls(ctx, &object)?;
    add_locales(ctx, &object)?;
    add!(ctx, &object, state, "absence", move |path: String, argument: Option<String>| {
        tools(&state).absence(&path, argument.as_deref()).map(|(_, message)| message)
    });
    add!(ctx, &object, "load", |ctx: Ctx<'js>, name: String| module(&ctx, &name));
    Ok(object)
}

/// Adds the functions for calls, timers and the console.
fn add_execution<'js>(ctx: &Ctx<'js>, object: &Object<'js>, state: &Rc<ScriptState>) -> rquickjs::Result<()> {
    add!(ctx, object, state, "origin", move |line: u32, column: u32| state.origin(line, column));
    add!(ctx, object, state, "log", move |level: String, text: String| state.log(level, text));
    add!(ctx, object, state, "now", move || state.started.elapsed().as_millis() as f64);
    add!(ctx, object, state, "startTimer", move |ms: f64| {
        state.timers.borrow_mut().start(Instant::now(), delay(ms))
    });
    add!(ctx, object, state, "holdTimer", move |id: u32, is_held: bool| {
        state.timers.borrow_mut().hold(id, is_held);
    });
    add!(ctx, object, state, "restartTimer", move |id: u32, ms: f64, is_held: bool| {
        state.timers.borrow_mut().restart(id, Instant::now(), delay(ms), is_held);
    });
    add!(ctx, object, state, "stopTimer", move |id: u32| state.timers.borrow_mut().stop(id));
    add!(ctx, object, state, "requestRaw", move |number: f64| state.request_raw(number as u64));
    add!(ctx, object, state, "callHost", move |function: String, args: String| {
        let args = RawValue::from_string(args).ok()?;
        state.call(wire::HOST.into(), function, args, None).map(|number| number as f64)
    });
    add!(ctx, object, state, "call", move |ctx: Ctx<'js>, server: usize, tool: String, args: String| {
        call(&ctx, &state, server, tool, args)
    });
    Ok(())
}

fn delay(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, f64::from(i32::MAX)) / 1000.0)
}

fn call(
    ctx: &Ctx<'_>,
    state: &ScriptState,
    server: usize,
    tool: String,
    args: String,
) -> rquickjs::Result<f64> {
    let Some(server) = tools(state).servers().get(server) else {
        return Err(Exception::throw_internal(ctx, "unknown server"));
    };
    // Half of a character in a key: the prelude has replaced those in texts.
    let args = if args.contains(r"\ud") { replace_lone_surrogates(&args) } else { args };
    let keys = server.tool(&tool).map(|tool| tool.argument_keys());
    let args = keys.and_then(|keys| keys.respell(&args)).unwrap_or(args);
    let advice = keys.and_then(|keys| keys.unknown_keys(&args));
    // JSON.stringify writes JSON, unless the script has replaced a `toJSON` by one that returns something else.
    match RawValue::from_string(args) {
        Ok(args) => match state.call(server.name.clone(), tool, args, advice) {
            Some(number) => Ok(number as f64),
            None => Err(Exception::throw_range(ctx, "the arguments are too long")),
        },
        Err(error) => Err(Exception::throw_type(ctx, &format!("the arguments are not valid JSON: {error}"))),
    }
}

fn tools(state: &ScriptState) -> &ToolLookup {
    state.tools.get().expect("the tools are set before the script runs")
}

/// Adds the lookup of servers and tools by name.
fn add_lookup<'js>(ctx: &Ctx<'js>, object: &Object<'js>, state: &Rc<ScriptState>) -> rquickjs::Result<()> {
    add!(ctx, object, state, "findServer", move |ctx: Ctx<'js>, name: String| {
        let tools = tools(&state);
        if let (LookupResult::NotFound { .. }, Some(advice)) =
            (tools.find_server(&name), names::advice_for_member(&name))
        {
            return advice.into_js(&ctx);
        }
        lookup_to_js(&ctx, tools.find_server(&name), || {
            tools.server_not_granted(&name).unwrap_or_else(|| format!("no server is named `{name}`"))
        })
    });
    add!(ctx, object, state, "findTool", move |ctx: Ctx<'js>, server: usize, name: String| {
        let entry = &tools(&state).servers()[server];
        if entry.is_absent {
            return (-1).into_js(&ctx);
        }
        let result = tools(&state).find_tool(server, &name);
        if let Some(id) = tools(&state).denied(&entry.name, &name).filter(|_| is_missing(&result)) {
            return format!("`{id}` is denied by the configuration").into_js(&ctx);
        }
        lookup_to_js(&ctx, result, || {
            let withheld = tools(&state).tool_not_granted(&entry.name, &name);
            withheld.unwrap_or_else(|| format!("server `{}` has no tool `{name}`", entry.name))
        })
    });
    add!(ctx, object, "probes", || names::PROBES.to_vec());
    add!(ctx, object, "splitId", |id: String| {
        split_id(&id).map(|(server, tool)| vec![server.to_owned(), tool.to_owned()])
    });
    add!(ctx, object, state, "refusalCode", move |server: String, tool: String| {
        tools(&state).refusal_code(&server, &tool)
    });
    add!(
        ctx,
        object,
        state,
        "refuseCall",
        move |server: String, tool: String, code: String, message: String| {
            let refused = RefusedToolCall { server, tool, code, message };
            state.refuse_call(tools(&state).with_original_names(refused));
        }
    );
    add!(ctx, object, state, "serverName", move |server: usize| tools(&state).servers()[server].name.clone());
    add!(ctx, object, state, "toolName", move |server: usize, tool: usize| {
        tools(&state).servers()[server].tools[tool].name.clone()
    });
    add!(ctx, object, state, "signature", move |server: usize, tool: String| {
        tools(&state).servers()[server].tool(&tool).and_then(|tool| tool.signature.clone())
    });
    add!(ctx, object, state, "serverNames", move || tools(&state).server_names());
    add!(ctx, object, state, "toolNames", move |server: usize| tools(&state).tool_names(server));
    add!(ctx, object, state, "serverIndices", move |ctx: Ctx<'js>| server_indices(&ctx, tools(&state)));
    add!(ctx, object, state, "toolIds", move || {
        let servers = tools(&state).servers().iter();
        let ids = servers
            .flat_map(|server| server.tools.iter().map(|tool| format!("{}:{}", server.name, tool.name)));
        ids.collect::<Vec<_>>()
    });
    Ok(())
}

fn is_missing(result: &LookupResult) -> bool {
    matches!(result, LookupResult::NotFound { .. })
}

/// Converts a lookup result to the index (a number) or an error message (a string).
fn lookup_to_js<'js>(
    ctx: &Ctx<'js>,
    result: LookupResult,
    not_found: impl FnOnce() -> String,
) -> rquickjs::Result<Value<'js>> {
    let quoted =
        |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match result {
        LookupResult::Found(index) => (index as f64).into_js(ctx),
        LookupResult::Ambiguous(names) => {
            let text = format!("the name is ambiguous: use one of {}, in brackets", quoted(&names));
            text.into_js(ctx)
        }
        LookupResult::NotFound { nearest } => {
            let message = not_found();
            if nearest.is_empty() || message.contains("not granted") {
                return message.into_js(ctx);
            }
            format!("{message}; did you mean {}?", quoted(&nearest)).into_js(ctx)
        }
    }
}

/// Returns every unambiguous name of every server, each followed by the server's index.
fn server_indices<'js>(ctx: &Ctx<'js>, tools: &ToolLookup) -> rquickjs::Result<Vec<Value<'js>>> {
    let mut indices = Vec::new();
    for (index, server) in tools.servers().iter().enumerate() {
        let camel = names::to_camel_case(&server.name);
        for name in [&server.name, &camel] {
            if tools.find_server(name) == LookupResult::Found(index) {
                indices.push(name.as_str().into_js(ctx)?);
                indices.push((index as f64).into_js(ctx)?);
            }
        }
    }
    Ok(indices)
}

/// Adds the functions for text and bytes.
fn add_encoding<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    add!(ctx, object, "decodeText", |ctx: Ctx<'js>, text: String, encoding: String| {
        TypedArray::<u8>::new(ctx, decode_text(&text, &encoding))
    });
    add!(ctx, object, "encodeBytes", |bytes: String, encoding: String| {
        encode_bytes(&bytes_of(&bytes), &encoding)
    });
    add!(ctx, object, "digest", |ctx: Ctx<'js>, algorithm: String, bytes: String| {
        digest(&algorithm, &bytes_of(&bytes)).map(|digest| TypedArray::<u8>::new(ctx, digest)).transpose()
    });
    add!(ctx, object, "encode", |ctx: Ctx<'js>, text: String| {
        TypedArray::<u8>::new(ctx, text.into_bytes())
    });
    add!(ctx, object, "decode", |ctx: Ctx<'js>,
                                 bytes: String,
                                 encoding: String,
                                 fatal: bool,
                                 keep_bom: bool,
                                 stream: bool|
     -> rquickjs::Result<Vec<Value<'js>>> {
        let bytes = bytes_of(&bytes);
        let (text, used) = decode(&bytes, &encoding, fatal, stream);
        let text = text.map(|text| match text.strip_prefix('\u{feff}') {
            Some(rest) if !keep_bom => rest.to_owned(),
            _ => text,
        });
        Ok(vec![text.into_js(&ctx)?, (used as f64).into_js(&ctx)?])
    });
    Ok(())
}

/// Adds the data and functions of `Intl`.
fn add_locales<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    let zones = Rc::new(TimeZones::new());
    add!(ctx, object, "intlData", |locale: String| intl_data(&locale));
    add!(ctx, object, zones, "defaultZone", move || zones.default_name().to_owned());
    add!(ctx, object, zones, "findZone", move |name: String| zones.find(&name));
    add!(ctx, object, zones, "zoneOffset", move |name: String, time: f64| zones.offset_seconds(&name, time));
    add!(ctx, object, "zoneNames", TimeZones::names);
    add!(ctx, object, "collate", |a: String, b: String, flags: u32| {
        collate(&a, &b, Collation::from_flags(flags)) as i32
    });
    add!(ctx, object, "collateAscii", |a: String, b: String, flags: u32| {
        // The prelude knows this number.
        const NOT_ASCII: i32 = 2;
        match a.is_ascii() && b.is_ascii() {
            true => collate_ascii(&a, &b, Collation::from_flags(flags)) as i32,
            false => NOT_ASCII,
        }
    });
    Ok(())
}

/// Returns the names and patterns of a locale as JSON. `tools/intl-data.mjs` prints the file.
fn intl_data(locale: &str) -> String {
    let all: std::collections::HashMap<&str, &RawValue> =
        serde_json::from_str(include_str!("intl_data.json")).unwrap_or_default();
    all.get(locale).map_or("{}", |data| data.get()).to_owned()
}

fn add_random<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    add!(ctx, object, "randomBytes", |ctx: Ctx<'js>, count: usize| {
        if count > 65_536 {
            return Err(Exception::throw_range(
                &ctx,
                "at most 65536 random bytes can be requested at a time",
            ));
        }
        let mut bytes = vec![0; count];
        fill_random(&ctx, &mut bytes)?;
        TypedArray::<u8>::new(ctx, bytes)
    });
    add!(ctx, object, "randomUuid", |ctx: Ctx<'js>| {
        let mut bits = [0; 16];
        fill_random(&ctx, &mut bits)?;
        Ok::<_, rquickjs::Error>(uuid_v4(u128::from_be_bytes(bits)))
    });
    Ok(())
}

fn fill_random(ctx: &Ctx<'_>, bytes: &mut [u8]) -> rquickjs::Result<()> {
    getrandom::fill(bytes).map_err(|_| Exception::throw_internal(ctx, "no random source available"))
}

fn uuid_v4(bits: u128) -> String {
    let bits = bits & !(0xf << 76) | 4 << 76;
    let bits = bits & !(0x3 << 62) | 2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Decodes hexadecimal or base64 text up to the first character that is not part of it.
fn decode_text(text: &str, encoding: &str) -> Vec<u8> {
    let bits = if encoding == "hex" { 4 } else { 6 };
    let digit = |c: char| match (bits, c) {
        (4, _) => c.to_digit(16),
        (_, 'A'..='Z') => Some(c as u32 - 'A' as u32),
        (_, 'a'..='z') => Some(c as u32 - 'a' as u32 + 26),
        (_, '0'..='9') => Some(c as u32 - '0' as u32 + 52),
        (_, '+' | '-') => Some(62),
        (_, '/' | '_') => Some(63),
        _ => None,
    };
    let (mut bytes, mut held, mut count) = (Vec::with_capacity(text.len() / 2), 0u32, 0);
    for value in text.chars().filter(|c| bits == 4 || !c.is_ascii_whitespace()).map_while(digit) {
        held = (held << bits | value) & 0xffff;
        count += bits;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count) as u8);
        }
    }
    bytes
}

fn encode_bytes(bytes: &[u8], encoding: &str) -> String {
    const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if encoding == "hex" {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            text.push(char::from(STANDARD[(bits >> (18 - 6 * index) & 63) as usize]));
        }
        text.extend(std::iter::repeat_n('=', 3 - chunk.len()));
    }
    match encoding {
        "base64url" => text.trim_end_matches('=').replace('+', "-").replace('/', "_"),
        _ => text,
    }
}

/// Returns the digest, or `None` for an unknown algorithm.
fn digest(algorithm: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match algorithm {
        "SHA-1" => &ring::digest::SHA1_FOR_LEGACY_USE_ONLY,
        "SHA-256" => &ring::digest::SHA256,
        "SHA-384" => &ring::digest::SHA384,
        "SHA-512" => &ring::digest::SHA512,
        _ => return None,
    };
    Some(ring::digest::digest(algorithm, bytes).as_ref().to_vec())
}

/// The prelude passes each byte as a character: reading a typed array here would need `unsafe`.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|character| character as u8).collect()
}

/// Returns the text and the number of decoded bytes. With `stream`, an incomplete character at the end is left for the next
/// chunk. With `fatal`, invalid bytes give no text.
fn decode(bytes: &[u8], encoding: &str, fatal: bool, stream: bool) -> (Option<String>, usize) {
    match encoding {
        "latin1" => (Some(bytes.iter().map(|byte| char::from(*byte)).collect()), bytes.len()),
        "utf-16le" => {
            let used = if stream { bytes.len() & !1 } else { bytes.len() };
            let odd = (used % 2 == 1).then_some(0xfffd);
            let pairs = bytes[..used].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            let units: Vec<u16> = pairs.chain(odd).collect();
            match String::from_utf16(&units) {
                Ok(text) => (Some(text), used),
                Err(_) if fatal => (None, used),
                Err(_) => (Some(String::from_utf16_lossy(&units)), used),
            }
        }
        _ => {
            let used = if stream { complete_utf8(bytes) } else { bytes.len() };
            match std::str::from_utf8(&bytes[..used]) {
                Ok(text) => (Some(text.to_owned()), used),
                Err(_) if fatal => (None, used),
                Err(_) => (Some(String::from_utf8_lossy(&bytes[..used]).into_owned()), used),
            }
        }
    }
}

/// Returns the length without an incomplete character at the end.
fn complete_utf8(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => match bytes.utf8_chunks().last() {
            // Invalid earlier: only the last character can still be completed by more bytes.
            Some(last) if !last.invalid().is_empty() && is_incomplete(last.invalid()) => {
                bytes.len() - last.invalid().len()
            }
            _ => bytes.len(),
        },
    }
}

fn is_incomplete(tail: &[u8]) -> bool {
    std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Adds the functions of `URL` and `URLSearchParams`.
fn add_urls<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    add!(ctx, object, "parseUrl", |url: String, base: rquickjs::function::Opt<Option<String>>| {
        let parsed = match base.0.flatten() {
            Some(base) => Url::parse(&base).and_then(|base| base.join(&url)),
            None => Url::parse(&url),
        };
        parsed.ok().map(|url| url_parts(&url))
    });
    add!(ctx, object, "setUrlPart", |url: String, part: String, value: String| {
        let mut url = Url::parse(&url).ok()?;
        set_part(&mut url, &part, &value).then(|| url_parts(&url))
    });
    add!(ctx, object, "parseQuery", |query: String| {
        let query = query.strip_prefix('?').unwrap_or(&query);
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.map(|(name, value)| vec![name.into_owned(), value.into_owned()]).collect::<Vec<_>>()
    });
    add!(ctx, object, "formatQuery", |pairs: Vec<Vec<String>>| {
        let mut writer = url::form_urlencoded::Serializer::new(String::new());
        for pair in &pairs {
            if let [name, value] = pair.as_slice() {
                writer.append_pair(name, value);
            }
        }
        writer.finish()
    });
    Ok(())
}

/// Returns the parts in the order of `PARTS` in `web.js`.
fn url_parts(url: &Url) -> Vec<String> {
    let origin = quirks::origin(url);
    [
        quirks::href(url),
        &origin,
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
    ]
    .map(str::to_owned)
    .into()
}

/// Sets one part. Returns false and changes nothing if the value is not valid.
fn set_part(url: &mut Url, part: &str, value: &str) -> bool {
    match part {
        "href" => quirks::set_href(url, value).is_ok(),
        "protocol" => quirks::set_protocol(url, value).is_ok(),
        "username" => quirks::set_username(url, value).is_ok(),
        "password" => quirks::set_password(url, value).is_ok(),
        "host" => quirks::set_host(url, value).is_ok(),
        "hostname" => quirks::set_hostname(url, value).is_ok(),
        "port" => quirks::set_port(url, value).is_ok(),
        "pathname" => {
            quirks::set_pathname(url, value);
            true
        }
        "search" => {
            quirks::set_search(url, value);
            true
        }
        "hash" => {
            quirks::set_hash(url, value);
            true
        }
        _ => false,
    }
}
