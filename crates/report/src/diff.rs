//! A sketch as a unified diff, for the page.
//!
//! **Guarantee.** The lines around the new one are those that travel with the report. If the report
//! does not have them, or the file was changed after the program was built, so that lines may have
//! moved, there is no diff.
//!
//! **Deviations.** Lines that excerpts have cut short end with `…`, so the diff is for eyes; that
//! is what a sketch is.

use brownout_findings::{Sketch, SourceText};

/// So many lines are shown on either side.
const AROUND: u32 = 3;

/// The lines of the diff, its heads first.
pub fn of(sketch: &Sketch, sources: &[SourceText], name: &str) -> Option<Vec<String>> {
    let source = sources.iter().find(|source| source.file == sketch.file)?;
    if source.newer {
        return None;
    }
    let excerpt = source.excerpts.iter().find(|excerpt| {
        let end = u64::from(excerpt.line) + excerpt.text.len() as u64;
        (u64::from(excerpt.line)..end).contains(&u64::from(sketch.line))
    })?;
    let at = (sketch.line - excerpt.line) as usize;
    let first = at.saturating_sub(AROUND as usize - 1);
    let last = (at + 1 + AROUND as usize).min(excerpt.text.len());
    let (before, after) = (&excerpt.text[first..=at], &excerpt.text[at + 1..last]);
    let count = before.len() + after.len();
    let begin = excerpt.line + first as u32;
    let mut lines = vec![
        format!("--- {name}"),
        format!("+++ {name}"),
        format!("@@ -{begin},{count} +{begin},{} @@", count + 1),
    ];
    lines.extend(before.iter().map(|line| format!(" {line}")));
    lines.push(format!("+{}", sketch.text));
    lines.extend(after.iter().map(|line| format!(" {line}")));
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_findings::Excerpt;

    #[test]
    fn the_new_line_stands_between_those_around_it() {
        let sketch = Sketch {
            file: "/src/list.c".into(),
            line: 12,
            text: "    pmem_persist(&list->head, 8);".into(),
        };
        let lines = (8..=16).map(|n| format!("    line {n};")).collect();
        let mut sources = vec![SourceText {
            file: "/src/list.c".into(),
            newer: false,
            excerpts: vec![Excerpt {
                line: 8,
                text: lines,
            }],
        }];
        let diff = of(&sketch, &sources, "list.c").expect("the lines are there");
        assert_eq!(
            diff.join("\n"),
            "--- list.c\n+++ list.c\n@@ -10,6 +10,7 @@\n     line 10;\n     line 11;\n     line 12;\n\
             +    pmem_persist(&list->head, 8);\n     line 13;\n     line 14;\n     line 15;"
        );
        let near = |line| {
            of(
                &Sketch {
                    line,
                    ..sketch.clone()
                },
                &sources,
                "list.c",
            )
        };
        assert_eq!(near(8).expect("at the top").len(), 3 + 1 + 1 + 3);
        assert_eq!(near(16).expect("at the end").len(), 3 + 3 + 1);
        assert_eq!(near(17), None);
        assert_eq!(near(7), None);
        sources[0].newer = true;
        assert_eq!(of(&sketch, &sources, "list.c"), None);
    }
}
