//! Compiles the prelude to the engine's own code, so that no worker has to read its text. The code is good for machines of
//! the byte order of the one that builds.

use std::path::{Path, PathBuf};

use rquickjs::{Context, Ctx, Module, Runtime, WriteOptions};

const FOLDER: &str = "src/prelude";
const PARTS: [&str; 7] = ["primordials", "stacks", "console", "timers", "web", "tools", "lockdown"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let context = Context::full(&Runtime::new()?)?;
    let mut table = String::new();
    for part in PARTS {
        let source = std::fs::read_to_string(Path::new(FOLDER).join(part).with_extension("js"))?;
        let code = context.with(|ctx| compile(&ctx, part, &source));
        let file = out.join(part);
        std::fs::write(&file, code.map_err(|error| format!("{part}.js: {error}"))?)?;
        table += &format!("({part:?}, include_bytes!({file:?}).as_slice()),");
    }
    std::fs::write(out.join("prelude.rs"), format!("&[{table}]"))?;
    Ok(())
}

/// Where a part's functions come from stays known: stacks leave them out by that. Their text is nobody's business.
fn compile(ctx: &Ctx<'_>, part: &str, source: &str) -> rquickjs::Result<Vec<u8>> {
    let module =
        Module::declare(ctx.clone(), format!("bascule:{part}"), ["export default ", source].concat())?;
    module.write(WriteOptions { strip_source: true, ..WriteOptions::default() })
}
