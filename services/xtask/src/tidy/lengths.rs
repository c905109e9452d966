//! Files and functions stay short enough to be read in one sitting.
//!
//! Tests are not counted: a table of cases may be long. Counting is by syntax, not by text, so that an inline test
//! module or a function inside a macro's argument is seen for what it is.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Breach;
use super::sources::Source;

/// Lines of a file without its test modules. Aim for 80–250.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function from its signature to its closing brace. Aim below 30.
const FUNCTION_LINES_MAX: usize = 70;

/// Every Rust file that is no test.
pub(crate) fn check(files: &[Source]) -> Vec<Breach> {
    files.iter().filter(|file| file.is_rust() && !file.is_test()).flat_map(check_file).collect()
}

fn check_file(file: &Source) -> Vec<Breach> {
    let syntax = match syn::parse_file(&file.text) {
        Ok(syntax) => syntax,
        Err(error) => {
            return vec![Breach::at(&file.path, error.span().start().line, format!("does not parse: {error}"))];
        }
    };
    let mut measure = Measure { path: &file.path, test_lines: 0, breaches: Vec::new() };
    measure.visit_file(&syntax);
    let lines = file.text.lines().count() - measure.test_lines;
    if lines > FILE_LINES_MAX {
        let message = format!("has {lines} lines without tests, more than {FILE_LINES_MAX}: split it by idea");
        measure.breaches.push(Breach::of(&file.path, message));
    }
    measure.breaches
}

struct Measure<'a> {
    path: &'a str,
    test_lines: usize,
    breaches: Vec<Breach>,
}

impl Measure<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - start;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("`{}` has {lines} lines, more than {FUNCTION_LINES_MAX}", signature.ident);
            self.breaches.push(Breach::at(self.path, start, message));
        }
    }
}

impl<'ast> Visit<'ast> for Measure<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_for_tests(&module.attrs) {
            self.test_lines += lines_of(module.span());
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if is_for_tests(&function.attrs) {
            self.test_lines += lines_of(function.span());
        } else {
            self.function(&function.sig, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

fn lines_of(span: Span) -> usize {
    span.end().line + 1 - span.start().line
}

/// `#[cfg(test)]`, also inside `all(..)`, and `#[test]` in all its kinds.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let condition = attribute.meta.require_list().ok().filter(|_| path.is_ident("cfg"));
        let words = condition.map(|list| list.tokens.to_string());
        let named = words.is_some_and(|words| words.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test"));
        named || path.segments.last().is_some_and(|segment| segment.ident == "test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    fn found(path: &str, text: &str) -> Vec<Breach> {
        check(&[source(path, text)])
    }

    fn long_function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found_wherever_it_is() {
        assert!(found("services/x/src/a.rs", &long_function(70)).is_empty());
        let breaches = found("services/x/src/a.rs", &format!("//! a\n{}", long_function(71)));
        assert_eq!((breaches.len(), breaches[0].line), (1, Some(2)));
        let in_impl = format!("struct A;\nimpl A {{\n{}}}\n", long_function(71));
        assert_eq!(found("services/x/src/a.rs", &in_impl).len(), 1);
        let in_trait = format!("trait A {{\n{}}}\n", long_function(71));
        assert_eq!(found("services/x/src/a.rs", &in_trait).len(), 1);
    }

    #[test]
    fn a_long_file_is_found_and_tests_do_not_count() {
        let code = "const A: u8 = 1;\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const B: u8 = 1;\n".repeat(300));
        assert!(found("services/x/src/a.rs", &format!("{code}{tests}")).is_empty());
        assert_eq!(found("services/x/src/a.rs", &format!("{code}const C: u8 = 1;\n{tests}")).len(), 1);
        assert!(found("services/x/src/a/tests.rs", &code.repeat(2)).is_empty());
        assert!(found("tests/integration/a.rs", &code.repeat(2)).is_empty());
    }

    #[test]
    fn a_long_test_is_not_found() {
        let test = format!("#[test]\n{}", long_function(90));
        assert!(found("services/x/src/a.rs", &test).is_empty());
        let tokio_test = format!("#[tokio::test(start_paused = true)]\n{}", long_function(90));
        assert!(found("services/x/src/a.rs", &tokio_test).is_empty());
        let feature = format!("#[cfg(feature = \"latest\")]\n{}", long_function(90));
        assert_eq!(found("services/x/src/a.rs", &feature).len(), 1);
    }

    #[test]
    fn a_file_that_does_not_parse_is_found() {
        assert!(found("services/x/src/a.rs", "fn {")[0].message.contains("does not parse"));
    }
}
