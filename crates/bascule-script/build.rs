//! Compiles the prelude to bytecode of the engine, so that workers do not parse its text. The bytecode works on machines with
//! the byte order of the build machine.

use std::path::{Path, PathBuf};

use rquickjs::{Context, Ctx, Module, Runtime, WriteOptions};

const FOLDER: &str = "src/prelude";
const MODULES: [&str; 11] = [
    "primordials",
    "stacks",
    "console",
    "timers",
    "values",
    "web",
    "tools",
    "lazy",
    "lockdown",
    "binary",
    "intl",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let context = Context::full(&Runtime::new()?)?;
    let mut table = String::new();
    for name in MODULES {
        let source = std::fs::read_to_string(Path::new(FOLDER).join(name).with_extension("js"))?;
        let code = context.with(|ctx| compile(&ctx, name, &source));
        let file = out.join(name);
        std::fs::write(&file, code.map_err(|error| format!("{name}.js: {error}"))?)?;
        table += &format!("({name:?}, include_bytes!({file:?}).as_slice()),");
    }
    std::fs::write(out.join("prelude.rs"), format!("&[{table}]"))?;
    Ok(())
}

/// Keeps the file name, by which stack traces leave out functions of the prelude, and strips the source text.
fn compile(ctx: &Ctx<'_>, name: &str, source: &str) -> rquickjs::Result<Vec<u8>> {
    let module =
        Module::declare(ctx.clone(), format!("bascule:{name}"), ["export default ", source].concat())?;
    module.write(WriteOptions { strip_source: true, ..WriteOptions::default() })
}
