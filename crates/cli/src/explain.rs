//! `brownout explain`: the pages of the built-in rules, as they stand in `docs/rules`.

use brownout_findings::rules::{RULES, Rule};

use crate::exit::Failure;
use crate::shell::print;

/// Prints the rule's page, or all rules in a line each.
pub fn explain(rule: Option<&Rule>) -> Result<u8, Failure> {
    match rule {
        Some(rule) => print(rule.page.as_bytes()),
        None => print(list().as_bytes()),
    }
}

fn list() -> String {
    let width = RULES.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    for rule in RULES {
        let on = match rule.default_on {
            true => "on",
            false => "off",
        };
        let (id, severity, summary) = (rule.id, rule.severity.name(), rule.summary);
        out.push_str(&format!("{id:width$}  {severity:11}  {on:3}  {summary}\n"));
    }
    out.push_str(
        "\n'brownout explain RULE' shows a rule's page; 'brownout check --enable RULE' and --disable switch those of check.\n\
         'brownout check --rule FILE' adds a rule of your own, whose findings explain themselves.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_rule_with_severity_and_default() {
        let list = list();
        let line = |id: &str| list.lines().find(|line| line.starts_with(id)).unwrap();
        assert!(
            RULES
                .iter()
                .all(|rule| line(rule.id).contains(rule.summary))
        );
        let words = |id| line(id).split_whitespace().take(3).collect::<Vec<_>>();
        assert_eq!(
            words("overwritten-unpersisted"),
            ["overwritten-unpersisted", "correctness", "off"]
        );
        assert_eq!(words("empty-fence"), ["empty-fence", "performance", "on"]);
    }
}
