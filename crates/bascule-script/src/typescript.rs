//! Transpiles TypeScript to JavaScript and maps positions back to the source. Types are removed, not checked.

use std::borrow::Cow;
use std::path::Path;

use oxc::allocator::Allocator;
use oxc::ast::AstKind;
use oxc::ast::ast::{Program, Statement};
use oxc::codegen::{Codegen, CodegenOptions};
use oxc::diagnostics::{OxcDiagnostic, Severity};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::{Semantic, SemanticBuilder};
use oxc::span::{GetSpan, SourceType, Span};
use oxc::transformer::{TransformOptions, Transformer};

use crate::check::{CheckedScript, Finding, check};
use crate::result_reads::ResultRead;
use crate::tool_lookup::ToolLookup;
use crate::unreturned::{self, Unreturned, call_sole_function, return_last_call};

#[derive(Debug, Default)]
pub(crate) struct TranspiledScript {
    /// The code, wrapped in an asynchronous function so that top-level `await` and `return` work.
    pub(crate) code: String,
    positions: PositionMap,
    /// Mistakes that were found before the script runs.
    pub(crate) mistakes: Vec<Mistake>,
    /// The members of results that are read without a test.
    pub(crate) reads: Vec<ResultRead>,
    /// The lines in which loops begin.
    pub(crate) loop_lines: Vec<u32>,
    /// The advice if the script returns nothing.
    pub(crate) unreturned: Unreturned,
}

/// A mistake in a script, and its place.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) position: SourcePosition,
    pub(crate) finding: Finding,
}

/// Line and column, both counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) position: Option<SourcePosition>,
}

/// Exactly one line: `TranspiledScript::origin` subtracts it.
const HEAD: &str = "(async () => {\"use strict\";\n";
const TAIL: &str = "\n})()";
const NO_IMPORT: &str = "scripts cannot import modules: call tools through `mcp`; `Buffer`, `URL`, `TextEncoder` and \
    `crypto.subtle.digest` are global; join paths as text";
const NO_EXPORT: &str = "scripts cannot export: use `return` to give back a value";

impl TranspiledScript {
    /// Transpiles a script, and checks its use of the tools.
    pub(crate) fn from_source(
        source: &str,
        tools: &ToolLookup,
        is_global: &dyn Fn(&str) -> bool,
    ) -> Result<Self, SyntaxError> {
        let source = &*without_fence(source);
        let arena = Allocator::default();
        let options = ParseOptions {
            allow_return_outside_function: true,
            parse_regular_expression: true,
            ..ParseOptions::default()
        };
        let parsed =
            Parser::new(&arena, source, SourceType::ts().with_module(true)).with_options(options).parse();
        check_diagnostics(source, parsed.diagnostics)?;
        if let Some(import) = parsed.module_record.dynamic_imports.first() {
            return Err(SyntaxError::at(source, import.span, NO_IMPORT));
        }
        if let Some(error) =
            parsed.program.body.iter().find_map(|statement| refuse_commonjs(source, statement))
        {
            return Err(error);
        }
        let mut program = parsed.program;
        // Inside the wrapping function the `#!` line would no longer be first.
        program.hashbang = None;
        call_sole_function(&arena, &mut program);
        let found = strip_types(source, &arena, &mut program, tools, is_global)?;
        refuse_modules(source, &mut program)?;
        if found.unreturned.has_result() {
            return_last_call(&arena, &mut program);
        }
        let TranspiledScript { code, positions, .. } = print(&program);
        Ok(Self { code, positions, ..found })
    }

    /// Maps a position in the code to its position in the source.
    pub(crate) fn origin(&self, line: u32, column: u32) -> Option<SourcePosition> {
        self.positions.origin(line.checked_sub(2)?, column.saturating_sub(1))
    }
}

/// Replaces a Markdown fence around the source by spaces, so that positions stay.
pub(crate) fn without_fence(source: &str) -> Cow<'_, str> {
    let start = source.len() - source.trim_start().len();
    let first = source[start..].lines().next().unwrap_or_default();
    let Some(fence) = ["```", "~~~"].into_iter().find(|fence| first.starts_with(fence)) else {
        return Cow::Borrowed(source);
    };
    let info = first.trim_start_matches(&fence[..1]).trim();
    if !info.chars().all(|c| c.is_ascii_alphanumeric() || "+-_.#{}=\"' ".contains(c)) {
        return Cow::Borrowed(source);
    }
    let body_end = match source.trim_end().rsplit_once('\n') {
        Some((before, last)) if last.trim() == fence && before.len() >= start + first.len() => before.len(),
        _ => source.len(),
    };
    let blank = |text: &str| text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect::<String>();
    let body_start = start + first.len();
    Cow::Owned(
        [&blank(&source[..body_start]), &source[body_start..body_end], &blank(&source[body_end..])].concat(),
    )
}

/// Removes the types. Returns what is found in the script, without its code.
fn strip_types<'a>(
    source: &str,
    arena: &'a Allocator,
    program: &mut Program<'a>,
    tools: &ToolLookup,
    is_global: &dyn Fn(&str) -> bool,
) -> Result<TranspiledScript, SyntaxError> {
    let builder = SemanticBuilder::new().with_check_syntax_error(true).with_enum_eval(true);
    let semantic = builder.with_build_nodes(true).build(program);
    check_diagnostics(source, semantic.diagnostics)?;
    let lines = Lines::of(source);
    let unreturned = unreturned::find(source, &semantic.semantic);
    let CheckedScript { findings, reads } =
        check(&semantic.semantic, tools, is_global, unreturned.result_call());
    let mistakes = findings
        .into_iter()
        .map(|finding| Mistake { position: lines.position_of(finding.offset as usize), finding });
    let found = TranspiledScript {
        mistakes: mistakes.collect(),
        reads,
        loop_lines: loop_lines(&lines, &semantic.semantic),
        unreturned,
        ..TranspiledScript::default()
    };
    let scoping = semantic.semantic.into_scoping();
    let options = TransformOptions::default();
    let done = Transformer::new(arena, Path::new("script.ts"), &options).build_with_scoping(scoping, program);
    check_diagnostics(source, done.diagnostics)?;
    Ok(found)
}

fn loop_lines(lines: &Lines<'_>, semantic: &Semantic<'_>) -> Vec<u32> {
    let loops = semantic.nodes().iter().filter_map(|node| match node.kind() {
        AstKind::ForStatement(each) => Some(each.span.start),
        AstKind::WhileStatement(each) => Some(each.span.start),
        AstKind::DoWhileStatement(each) => Some(each.span.start),
        _ => None,
    });
    loops.filter_map(|offset| u32::try_from(lines.line_of(offset as usize)).ok()).collect()
}

/// Refuses `export = x` and `import x = require('y')`, which would become code that uses `module` and `require`.
fn refuse_commonjs(source: &str, statement: &Statement<'_>) -> Option<SyntaxError> {
    match statement {
        Statement::TSExportAssignment(export) => Some(SyntaxError::at(source, export.span, NO_EXPORT)),
        Statement::TSImportEqualsDeclaration(import) if import.module_reference.is_external() => {
            Some(SyntaxError::at(source, import.span, NO_IMPORT))
        }
        _ => None,
    }
}

/// Refuses imports and exports. Type-only imports are already gone and leave an empty export, which is removed; some authors
/// also write one.
fn refuse_modules(source: &str, program: &mut Program<'_>) -> Result<(), SyntaxError> {
    program.body.retain(|statement| match statement {
        Statement::ExportNamedDeclaration(export) => !export.specifiers.is_empty(),
        _ => true,
    });
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

fn print(program: &Program<'_>) -> TranspiledScript {
    let options = CodegenOptions { source_map_path: Some("script.ts".into()), ..CodegenOptions::default() };
    let printed = Codegen::new().with_options(options).build(program);
    let tokens = printed.map.iter().flat_map(|map| map.get_tokens());
    let mappings = tokens.map(|token| Mapping {
        code: (token.get_dst_line(), token.get_dst_col()),
        source: (token.get_src_line(), token.get_src_col()),
    });
    let positions = PositionMap(mappings.collect());
    TranspiledScript { code: [HEAD, &printed.code, TAIL].concat(), positions, ..TranspiledScript::default() }
}

/// Mappings in the order of the code.
#[derive(Debug, Default)]
struct PositionMap(Vec<Mapping>);

/// A line and column of the code and of the source, counted from zero.
#[derive(Debug)]
struct Mapping {
    code: (u32, u32),
    source: (u32, u32),
}

impl PositionMap {
    /// Uses the last mapping at or before the position in the same line, else the first of that line.
    fn origin(&self, line: u32, column: u32) -> Option<SourcePosition> {
        let after = self.0.partition_point(|mapping| mapping.code <= (line, column));
        let is_in_line = |mapping: &&Mapping| mapping.code.0 == line;
        let before = after.checked_sub(1).map(|index| &self.0[index]).filter(is_in_line);
        let mapping = before.or_else(|| self.0.get(after).filter(is_in_line))?;
        Some(SourcePosition { line: mapping.source.0 + 1, column: mapping.source.1 + 1 })
    }
}

/// Fails with the first error among the diagnostics.
fn check_diagnostics(
    source: &str,
    diagnostics: impl IntoIterator<Item = OxcDiagnostic>,
) -> Result<(), SyntaxError> {
    match diagnostics.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
        Some(error) => Err(SyntaxError::from_diagnostic(source, &error)),
        None => Ok(()),
    }
}

impl SyntaxError {
    fn from_diagnostic(source: &str, error: &OxcDiagnostic) -> Self {
        let message = match &error.help {
            Some(help) => format!("{} ({help})", error.message),
            None => error.message.to_string(),
        };
        let offset = error.labels.first().map(|label| label.offset());
        Self { message, position: offset.map(|offset| position_of(source, offset as usize)) }
    }

    fn at(source: &str, span: Span, message: &str) -> Self {
        Self { message: message.into(), position: Some(position_of(source, span.start as usize)) }
    }
}

/// Returns the offset of a position in the source.
pub(crate) fn offset_of(source: &str, position: SourcePosition) -> Option<u32> {
    let line_start = match position.line.checked_sub(2) {
        None => 0,
        Some(before) => source.match_indices('\n').nth(before as usize)?.0 + 1,
    };
    let line = source[line_start..].split('\n').next().unwrap_or_default();
    let mut units = 1;
    for (offset, character) in line.char_indices() {
        if units >= position.column {
            return u32::try_from(line_start + offset).ok();
        }
        units += character.len_utf16() as u32;
    }
    None
}

/// Returns the position of an offset. For many offsets, [`Lines`] is made once.
pub(crate) fn position_of(source: &str, offset: usize) -> SourcePosition {
    Lines::of(source).position_of(offset)
}

/// The lines of a source. As in JavaScript, a line feed, a carriage return, both together, U+2028 and U+2029 end a line.
struct Lines<'s> {
    source: &'s str,
    /// The offset at which each line begins.
    starts: Vec<usize>,
}

impl<'s> Lines<'s> {
    fn of(source: &'s str) -> Self {
        let ends = source.char_indices().filter(|(at, character)| {
            let is_crlf = *character == '\r' && source[at + 1..].starts_with('\n');
            matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}') && !is_crlf
        });
        let starts = ends.map(|(at, character)| at + character.len_utf8());
        Self { source, starts: std::iter::once(0).chain(starts).collect() }
    }

    /// Returns the number of the line, counted from one.
    fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    fn position_of(&self, offset: usize) -> SourcePosition {
        let offset = offset.min(self.source.len());
        let line = self.line_of(offset);
        let before = self.source.get(self.starts[line - 1]..offset).unwrap_or_default();
        let column = before.encode_utf16().count() + 1;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        SourcePosition { line: number(line), column: number(column) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transpile(source: &str) -> String {
        let code = TranspiledScript::from_source(source, &ToolLookup::default(), &|_| true).unwrap().code;
        code.strip_prefix(HEAD).unwrap().strip_suffix(TAIL).unwrap().trim().to_owned()
    }

    fn syntax_error(source: &str) -> (String, u32, u32) {
        let error = TranspiledScript::from_source(source, &ToolLookup::default(), &|_| true).unwrap_err();
        let position = error.position.unwrap();
        (error.message, position.line, position.column)
    }

    // req: CM-06
    #[test]
    fn removes_types() {
        assert_eq!(
            transpile("const x: number = 1 as any satisfies unknown;\nreturn x!"),
            "const x = 1;\nreturn x;"
        );
        assert_eq!(transpile("function f<T>(a: T): T { return a }"), "function f(a) {\n\treturn a;\n}");
        assert_eq!(transpile("#!/usr/bin/env -S bascule run\nreturn 1"), "return 1;");
        assert_eq!(transpile("import type { A } from 'b'; interface I {} type T = I"), "");
    }

    // req: CM-06
    #[test]
    fn strips_markdown_fence() {
        assert_eq!(transpile("```ts\nreturn 1\n```\n"), "return 1;");
        assert_eq!(transpile("\n~~~\nreturn `a`\n~~~"), "return `a`;");
        assert_eq!(transpile("```typescript\nreturn 1"), "return 1;");
        assert_eq!(transpile("`a`;\n`b`"), "`a`;\n`b`;");
        assert_eq!(syntax_error("```ts\nconst a = ;\n```").1, 2);
        assert!(TranspiledScript::from_source("```", &ToolLookup::default(), &|_| true).is_ok());
        assert!(TranspiledScript::from_source("```ts\n```", &ToolLookup::default(), &|_| true).is_ok());
    }

    // req: CM-06
    #[test]
    fn compiles_enums_and_namespaces() {
        assert!(transpile("enum E { A, B = 'b' }; return E.A").contains("E[\"A\"]"));
        assert!(transpile("namespace N { export const x = 1 }; return N.x").contains("N.x"));
    }

    // req: CM-06
    #[test]
    fn lines_end_as_in_javascript() {
        let source = "a\r\nb\rc\u{2028}d\n\n😀e";
        let positions = |text: &str| {
            let SourcePosition { line, column } = position_of(source, source.find(text).unwrap());
            (line, column)
        };
        assert_eq!(positions("a"), (1, 1));
        assert_eq!(positions("\n"), (1, 3));
        assert_eq!(positions("b"), (2, 1));
        assert_eq!(positions("c"), (3, 1));
        assert_eq!(positions("d"), (4, 1));
        assert_eq!(positions("e"), (6, 3));
        assert_eq!(position_of(source, 1_000).line, 6);
        let script = TranspiledScript::from_source(
            "for (;;) {}\n\nwhile (a) {}; do {} while (b)\n",
            &ToolLookup::default(),
            &|_| true,
        );
        assert_eq!(script.unwrap().loop_lines, [1, 3, 3]);
    }

    // req: CM-06
    #[test]
    fn syntax_error_has_position() {
        let (_, line, column) = syntax_error("const a = 1;\nconst b = ;\n");
        assert_eq!((line, column), (2, 11));
        assert_eq!(syntax_error("a\r\nb\rc\u{2028}😀 = ;").1, 4);
        let (message, line, _) = syntax_error("let a = 1;\nlet a = 2;");
        assert!(message.contains("already been declared"), "{message}");
        assert_eq!(line, 1);
    }

    #[test]
    fn refuses_imports_and_exports() {
        assert!(syntax_error("import fs from 'fs';\nfs.x()").0.contains("cannot import modules"));
        assert_eq!(syntax_error("const f = await import('fs')").1, 1);
        assert!(syntax_error("\nexport const a = 1").0.contains("`return`"));
        assert!(syntax_error("export = 5").0.contains("`return`"));
        assert!(syntax_error("import fs = require('fs'); fs.x").0.contains("cannot import modules"));
        assert_eq!(transpile("export {};"), "");
        assert!(transpile("for await (const x of [1]) x;").starts_with("for await"));
    }

    // req: CM-05
    #[test]
    fn maps_positions_to_source() {
        let script = TranspiledScript::from_source(
            "interface A {\n  b: string\n}\n\n  throw   new Error('x')",
            &ToolLookup::default(),
            &|_| true,
        )
        .unwrap();
        let at = script.code.lines().position(|line| line.contains("throw")).unwrap();
        let column = script.code.lines().nth(at).unwrap().find("new").unwrap();
        let origin = script.origin(at as u32 + 1, column as u32 + 1);
        assert_eq!(origin, Some(SourcePosition { line: 5, column: 11 }));
    }
}
