//! The functions that the harness has from Rust. Scripts never see them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::{Ctx, Exception, Function, IntoJs, Object, TypedArray, Value};
use serde_json::value::RawValue;
use url::Url;
use url::quirks;

use crate::directory::{Directory, Found};
use crate::names;
use crate::state::State;

/// All of them, on one object.
pub(crate) fn natives<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> rquickjs::Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    add_running(ctx, &object, state)?;
    add_names(ctx, &object, state)?;
    add_text(ctx, &object)?;
    add_addresses(ctx, &object)?;
    Ok(object)
}

macro_rules! add {
    ($ctx:expr, $object:expr, $name:literal, $function:expr) => {
        $object.set($name, Function::new($ctx.clone(), $function)?)?
    };
}

/// Calls, timers, console.
fn add_running<'js>(ctx: &Ctx<'js>, object: &Object<'js>, state: &Rc<State>) -> rquickjs::Result<()> {
    let my = state.clone();
    add!(ctx, object, "origin", move |line: u32, column: u32| my.origin(line, column));
    let my = state.clone();
    add!(ctx, object, "log", move |level: String, text: String| my.log(level, text));
    let my = state.clone();
    add!(ctx, object, "now", move || my.began.elapsed().as_millis() as f64);
    let my = state.clone();
    add!(ctx, object, "startTimer", move |ms: f64| my.timers.borrow_mut().start(Instant::now(), delay(ms)));
    let my = state.clone();
    add!(ctx, object, "restartTimer", move |id: u32, ms: f64| {
        my.timers.borrow_mut().restart(id, Instant::now(), delay(ms));
    });
    let my = state.clone();
    add!(ctx, object, "stopTimer", move |id: u32| my.timers.borrow_mut().stop(id));
    let my = state.clone();
    add!(ctx, object, "wantWhole", move |number: f64| my.want_whole(number as u64));
    let my = state.clone();
    add!(ctx, object, "call", move |ctx: Ctx<'js>, server: usize, tool: String, args: String| {
        call(&ctx, &my, server, tool, args)
    });
    Ok(())
}

fn delay(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, f64::from(i32::MAX)) / 1000.0)
}

fn call(ctx: &Ctx<'_>, state: &State, server: usize, tool: String, args: String) -> rquickjs::Result<f64> {
    let found = directory(state).servers().get(server);
    let Some(server) = found else { return Err(Exception::throw_internal(ctx, "no such server")) };
    let args = server.tool(&tool).and_then(|known| known.keys().fit(&args)).unwrap_or(args);
    // What JSON.stringify wrote is JSON, except that a script may have put in `toJSON`s that write something else.
    match RawValue::from_string(args) {
        Ok(args) => match state.call(server.name.clone(), tool, args) {
            Some(number) => Ok(number as f64),
            None => Err(Exception::throw_range(ctx, "the arguments are too long to be sent")),
        },
        Err(error) => Err(Exception::throw_type(ctx, &format!("the arguments are no JSON: {error}"))),
    }
}

fn directory(state: &State) -> &Directory {
    state.directory.get().expect("the directory is set before a script runs")
}

/// Names of servers and tools.
fn add_names<'js>(ctx: &Ctx<'js>, object: &Object<'js>, state: &Rc<State>) -> rquickjs::Result<()> {
    let my = state.clone();
    add!(ctx, object, "findServer", move |ctx: Ctx<'js>, name: String| {
        let found = directory(&my).find(&name);
        told(&ctx, found, || format!("no server is called `{name}`"))
    });
    let my = state.clone();
    add!(ctx, object, "findTool", move |ctx: Ctx<'js>, server: usize, name: String| {
        let directory = directory(&my);
        if directory.servers()[server].is_absent {
            return (-1).into_js(&ctx);
        }
        let server_name = &directory.servers()[server].name;
        let found = directory.find_tool(server, &name);
        told(&ctx, found, || format!("server `{server_name}` has no tool `{name}` that this script may use"))
    });
    let my = state.clone();
    add!(ctx, object, "serverName", move |server: usize| directory(&my).servers()[server].name.clone());
    let my = state.clone();
    add!(ctx, object, "toolName", move |server: usize, tool: usize| {
        directory(&my).servers()[server].tools[tool].name.clone()
    });
    let my = state.clone();
    add!(ctx, object, "serverNames", move || directory(&my).names());
    let my = state.clone();
    add!(ctx, object, "toolNames", move |server: usize| directory(&my).tool_names(server));
    let my = state.clone();
    add!(ctx, object, "serverPlaces", move |ctx: Ctx<'js>| places(&ctx, directory(&my)));
    let my = state.clone();
    add!(ctx, object, "toolIds", move || {
        let ids = directory(&my)
            .servers()
            .iter()
            .flat_map(|server| server.tools.iter().map(move |tool| format!("{}:{}", server.name, tool.name)));
        ids.collect::<Vec<_>>()
    });
    Ok(())
}

/// A place as a number, a miss as what to say of it.
fn told<'js>(ctx: &Ctx<'js>, found: Found, nothing: impl FnOnce() -> String) -> rquickjs::Result<Value<'js>> {
    let quoted =
        |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match found {
        Found::One(place) => (place as f64).into_js(ctx),
        Found::Several(names) => {
            format!("the name could mean {}: write one of them, in brackets", quoted(&names)).into_js(ctx)
        }
        Found::None(near) if near.is_empty() => nothing().into_js(ctx),
        Found::None(near) => format!("{}; near it: {}", nothing(), quoted(&near)).into_js(ctx),
    }
}

/// Every name of every server, each followed by its place.
fn places<'js>(ctx: &Ctx<'js>, directory: &Directory) -> rquickjs::Result<Vec<Value<'js>>> {
    let mut places = Vec::new();
    for (place, server) in directory.servers().iter().enumerate() {
        let camel = names::camel(&server.name);
        for name in [&server.name, &camel] {
            if directory.find(name) == Found::One(place) {
                places.push(name.as_str().into_js(ctx)?);
                places.push((place as f64).into_js(ctx)?);
            }
        }
    }
    Ok(places)
}

/// Bytes, text and chance.
fn add_text<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    add!(ctx, object, "encode", |ctx: Ctx<'js>, text: String| {
        TypedArray::<u8>::new(ctx, text.into_bytes())
    });
    add!(ctx, object, "decode", |ctx: Ctx<'js>,
                                 bytes: String,
                                 encoding: String,
                                 fatal: bool,
                                 keep_mark: bool,
                                 stream: bool|
     -> rquickjs::Result<Vec<Value<'js>>> {
        // The harness writes each byte as a letter: a typed array cannot be read here without `unsafe`.
        let bytes: Vec<u8> = bytes.chars().map(|letter| letter as u8).collect();
        let (text, used) = decode(&bytes, &encoding, fatal, stream);
        let text = text.map(|text| match text.strip_prefix('\u{feff}') {
            Some(rest) if !keep_mark => rest.to_owned(),
            _ => text,
        });
        Ok(vec![text.into_js(&ctx)?, (used as f64).into_js(&ctx)?])
    });
    add!(ctx, object, "random", |ctx: Ctx<'js>, count: usize| {
        if count > 65_536 {
            return Err(Exception::throw_range(&ctx, "at most 65536 random bytes at a time"));
        }
        let mut bytes = vec![0; count];
        match getrandom::fill(&mut bytes) {
            Ok(()) => TypedArray::<u8>::new(ctx, bytes),
            Err(_) => Err(Exception::throw_internal(&ctx, "there is no chance here")),
        }
    });
    add!(ctx, object, "uuid", |ctx: Ctx<'js>| {
        let mut bits = [0; 16];
        match getrandom::fill(&mut bits) {
            Ok(()) => Ok(uuid(u128::from_be_bytes(bits))),
            Err(_) => Err(Exception::throw_internal(&ctx, "there is no chance here")),
        }
    });
    Ok(())
}

/// Version 4, variant 1.
fn uuid(bits: u128) -> String {
    let bits = bits & !(0xf << 76) | 4 << 76;
    let bits = bits & !(0x3 << 62) | 2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The text, if it is one, and how many bytes are in it: with `stream` a letter that is cut off waits for its rest.
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
            let used = if stream { whole_utf8(bytes) } else { bytes.len() };
            match std::str::from_utf8(&bytes[..used]) {
                Ok(text) => (Some(text.to_owned()), used),
                Err(_) if fatal => (None, used),
                Err(_) => (Some(String::from_utf8_lossy(&bytes[..used]).into_owned()), used),
            }
        }
    }
}

/// How many of the bytes are before a letter that is cut off at the end.
fn whole_utf8(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => match bytes.utf8_chunks().last() {
            // Broken earlier: only what ends the bytes can still be completed.
            Some(last) if !last.invalid().is_empty() && is_cut_off(last.invalid()) => {
                bytes.len() - last.invalid().len()
            }
            _ => bytes.len(),
        },
    }
}

fn is_cut_off(tail: &[u8]) -> bool {
    std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Addresses and their queries.
fn add_addresses<'js>(ctx: &Ctx<'js>, object: &Object<'js>) -> rquickjs::Result<()> {
    add!(ctx, object, "parseUrl", |address: String, base: rquickjs::function::Opt<Option<String>>| {
        let parsed = match base.0.flatten() {
            Some(base) => Url::parse(&base).and_then(|base| base.join(&address)),
            None => Url::parse(&address),
        };
        parsed.ok().map(|url| parts(&url))
    });
    add!(ctx, object, "changeUrl", |address: String, part: String, value: String| {
        let mut url = Url::parse(&address).ok()?;
        change(&mut url, &part, &value).then(|| parts(&url))
    });
    add!(ctx, object, "parseQuery", |query: String| {
        let query = query.strip_prefix('?').unwrap_or(&query);
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.map(|(name, value)| vec![name.into_owned(), value.into_owned()]).collect::<Vec<_>>()
    });
    add!(ctx, object, "writeQuery", |pairs: Vec<Vec<String>>| {
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

/// In the order that the harness has them.
fn parts(url: &Url) -> Vec<String> {
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

/// Whether the address has changed: what does not fit leaves it as it is.
fn change(url: &mut Url, part: &str, value: &str) -> bool {
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
