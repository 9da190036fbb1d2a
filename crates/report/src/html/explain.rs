//! The pages of rules, as HTML.
//!
//! **Guarantee.** Only the built-in pages (`docs/rules`) come here, so nothing of a program's does.
//! Their links lead to other files of the documentation, which a page that is read elsewhere does
//! not have: their text stays, the link goes. HTML inside a page is shown as text.

use brownout_findings::rules::Rule;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The page of a rule without its title, with headings that fit below those of a finding.
pub fn page(rule: &Rule) -> String {
    let text = match rule.page.split_once('\n') {
        Some((title, rest)) if title.starts_with("# ") => rest,
        _ => rule.page,
    };
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { .. } | Tag::Image { .. }) => None,
        Event::End(TagEnd::Link | TagEnd::Image) => None,
        Event::Html(text) | Event::InlineHtml(text) => Some(Event::Text(text)),
        Event::Start(Tag::Heading { level, .. }) => Some(Event::Start(Tag::Heading {
            level: lower(level),
            id: None,
            classes: Vec::new(),
            attrs: Vec::new(),
        })),
        Event::End(TagEnd::Heading(level)) => Some(Event::End(TagEnd::Heading(lower(level)))),
        event => Some(event),
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 | HeadingLevel::H2 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::rules::RULES;

    #[test]
    fn every_page_has_its_parts_and_no_links() {
        for rule in RULES {
            let page = page(rule);
            for part in ["What it means", "Example", "How to fix it"] {
                assert!(page.contains(&format!("<h5>{part}</h5>")), "{}", rule.id);
            }
            for wrong in [
                "<a ", "<img", "<script", "<style", " style=", "<h1", "<h2", "<h3", "<h4",
            ] {
                assert!(!page.contains(wrong), "{}: {wrong}", rule.id);
            }
        }
    }
}
