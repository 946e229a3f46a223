//! Makes JavaScript of TypeScript, and remembers where in the author's text everything came from.
//!
//! Only takes types away: whether they fit is nobody's business here.

use std::path::Path;

use oxc::allocator::Allocator;
use oxc::ast::ast::{Program, Statement};
use oxc::codegen::{Codegen, CodegenOptions};
use oxc::diagnostics::{OxcDiagnostic, Severity};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::SemanticBuilder;
use oxc::span::{GetSpan, SourceType, Span};
use oxc::transformer::{TransformOptions, Transformer};

/// A script the engine can run.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    /// Its text, inside an asynchronous function, so that `await` and `return` may stand anywhere.
    pub(crate) code: String,
    map: Map,
}

/// A place in a text, line and column counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// Why a text is no script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) place: Option<Place>,
}

/// What stands before the script is one line.
const HEAD: &str = "(async () => {\"use strict\";\n";
const TAIL: &str = "\n})()";
const NO_IMPORT: &str =
    "a script cannot import: tools are on `mcp`, helpers on `bascule`, and nothing else is there";
const NO_EXPORT: &str = "a script exports nothing: what it has to say it gives back with `return`";

impl Translated {
    pub(crate) fn of(source: &str) -> Result<Self, SyntaxError> {
        let arena = Allocator::default();
        let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
        let parsed = Parser::new(&arena, source, SourceType::ts()).with_options(options).parse();
        refuse(source, parsed.diagnostics)?;
        if let Some(import) = parsed.module_record.dynamic_imports.first() {
            return Err(SyntaxError::at(source, import.span, NO_IMPORT));
        }
        let mut program = parsed.program;
        // Inside a function it would be no longer the first line.
        program.hashbang = None;
        strip(source, &arena, &mut program)?;
        refuse_modules(source, &mut program)?;
        Ok(print(&program))
    }

    /// Where in the author's text a place of the translation comes from.
    pub(crate) fn origin(&self, line: u32, column: u32) -> Option<Place> {
        self.map.origin(line.checked_sub(2)?, column.saturating_sub(1))
    }
}

fn strip<'a>(source: &str, arena: &'a Allocator, program: &mut Program<'a>) -> Result<(), SyntaxError> {
    let semantic = SemanticBuilder::new().with_check_syntax_error(true).with_enum_eval(true).build(program);
    refuse(source, semantic.diagnostics)?;
    let scoping = semantic.semantic.into_scoping();
    let options = TransformOptions::default();
    let done = Transformer::new(arena, Path::new("script.ts"), &options).build_with_scoping(scoping, program);
    refuse(source, done.diagnostics)
}

/// What imported only types is gone by now, and leaves an empty export behind.
fn refuse_modules(source: &str, program: &mut Program<'_>) -> Result<(), SyntaxError> {
    program.body.retain(
        |statement| !matches!(statement, Statement::ExportNamedDeclaration(export) if export.span.is_empty()),
    );
    for statement in &program.body {
        match statement {
            Statement::ImportDeclaration(import) => {
                return Err(SyntaxError::at(source, import.span, NO_IMPORT));
            }
            statement if statement.is_module_declaration() => {
                return Err(SyntaxError::at(source, statement.span(), NO_EXPORT));
            }
            _ => {}
        }
    }
    Ok(())
}

fn print(program: &Program<'_>) -> Translated {
    let options = CodegenOptions { source_map_path: Some("script.ts".into()), ..CodegenOptions::default() };
    let printed = Codegen::new().with_options(options).build(program);
    let tokens = printed.map.iter().flat_map(|map| map.get_tokens());
    let map = Map(tokens
        .map(|token| Mapped {
            to: (token.get_dst_line(), token.get_dst_col()),
            from: (token.get_src_line(), token.get_src_col()),
        })
        .collect());
    Translated { code: [HEAD, &printed.code, TAIL].concat(), map }
}

/// The places of a translation and where they come from, counted from zero, in order.
#[derive(Debug, Default)]
struct Map(Vec<Mapped>);

#[derive(Debug)]
struct Mapped {
    to: (u32, u32),
    from: (u32, u32),
}

impl Map {
    /// The origin of the last known place at or before this one, in the same line; else of the line's first.
    fn origin(&self, line: u32, column: u32) -> Option<Place> {
        let after = self.0.partition_point(|mapped| mapped.to <= (line, column));
        let same_line = |mapped: &&Mapped| mapped.to.0 == line;
        let before = after.checked_sub(1).map(|at| &self.0[at]).filter(same_line);
        let mapped = before.or_else(|| self.0.get(after).filter(same_line))?;
        Some(Place { line: mapped.from.0 + 1, column: mapped.from.1 + 1 })
    }
}

fn refuse(source: &str, said: impl IntoIterator<Item = OxcDiagnostic>) -> Result<(), SyntaxError> {
    match said.into_iter().find(|said| said.severity == Severity::Error) {
        Some(error) => Err(SyntaxError::of(source, &error)),
        None => Ok(()),
    }
}

impl SyntaxError {
    fn of(source: &str, error: &OxcDiagnostic) -> Self {
        let message = match &error.help {
            Some(help) => format!("{} ({help})", error.message),
            None => error.message.to_string(),
        };
        let offset = error.labels.first().map(|label| label.offset());
        Self { message, place: offset.map(|offset| place_of(source, offset as usize)) }
    }

    fn at(source: &str, span: Span, message: &str) -> Self {
        Self { message: message.into(), place: Some(place_of(source, span.start as usize)) }
    }
}

fn place_of(source: &str, offset: usize) -> Place {
    let before = source.get(..offset.min(source.len())).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place {
        line: count(before.matches('\n').count() + 1),
        column: count(before[line_start..].encode_utf16().count() + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(source: &str) -> String {
        let code = Translated::of(source).unwrap().code;
        code.strip_prefix(HEAD).unwrap().strip_suffix(TAIL).unwrap().trim().to_owned()
    }

    fn complaint(source: &str) -> (String, u32, u32) {
        let error = Translated::of(source).unwrap_err();
        let place = error.place.unwrap();
        (error.message, place.line, place.column)
    }

    // req: CM-06
    #[test]
    fn types_go_and_the_rest_stays() {
        assert_eq!(
            translate("const x: number = 1 as any satisfies unknown;\nreturn x!"),
            "const x = 1;\nreturn x;"
        );
        assert_eq!(translate("function f<T>(a: T): T { return a }"), "function f(a) {\n\treturn a;\n}");
        assert_eq!(translate("#!/usr/bin/env -S bascule run\nreturn 1"), "return 1;");
        assert_eq!(translate("import type { A } from 'b'; interface I {} type T = I"), "");
    }

    // req: CM-06
    #[test]
    fn enums_and_namespaces_become_code() {
        assert!(translate("enum E { A, B = 'b' }; return E.A").contains("E[\"A\"]"));
        assert!(translate("namespace N { export const x = 1 }; return N.x").contains("N.x"));
    }

    // req: CM-06
    #[test]
    fn a_syntax_error_knows_its_place() {
        let (_, line, column) = complaint("const a = 1;\nconst b = ;\n");
        assert_eq!((line, column), (2, 11));
        let (message, line, _) = complaint("let a = 1;\nlet a = 2;");
        assert!(message.contains("already been declared"), "{message}");
        assert_eq!(line, 1);
    }

    #[test]
    fn what_a_script_cannot_have_is_said_to_it() {
        assert!(complaint("import fs from 'fs';\nfs.x()").0.contains("cannot import"));
        assert_eq!(complaint("const f = await import('fs')").1, 1);
        assert!(complaint("\nexport const a = 1").0.contains("`return`"));
    }

    // req: CM-05
    #[test]
    fn every_place_of_the_translation_has_an_origin() {
        let script = Translated::of("interface A {\n  b: string\n}\n\n  throw   new Error('x')").unwrap();
        let at = script.code.lines().position(|line| line.contains("throw")).unwrap();
        let column = script.code.lines().nth(at).unwrap().find("new").unwrap();
        let origin = script.origin(at as u32 + 1, column as u32 + 1);
        assert_eq!(origin, Some(Place { line: 5, column: 11 }));
    }
}
