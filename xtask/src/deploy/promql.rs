//! Which metrics and labels an expression names. Enters: PromQL that Prometheus accepts; leaves: names. Not a parser:
//! `promtool` says whether an expression is right, this says only what it is about.

use std::collections::BTreeSet;

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Each selector: the metric, and the labels it is selected by.
    pub(super) selectors: Vec<(String, Vec<String>)>,
    /// Labels in `by`, `on` and the like, in order.
    pub(super) groupings: Vec<Vec<String>>,
    /// Strings that are no label's value: arguments of functions.
    pub(super) strings: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const AGGREGATES: [&str; 2] = ["by", "without"];
const WORDS: [&str; 9] = ["and", "or", "unless", "offset", "bool", "atan2", "inf", "nan", "Inf"];

/// Reads an expression.
///
/// # Errors
/// When it selects by something else than a metric's name, or does not end.
pub(super) fn names(expression: &str) -> Result<Names, String> {
    let tokens = tokens(expression)?;
    let mut names = Names::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        match token {
            Token::Word(word) if GROUPING.contains(&word.as_str()) && next == Some(&Token::Sign('(')) => {
                let (labels, end) = until(&tokens, at + 2, ')')?;
                names.groupings.push(labels);
                at = end;
            }
            // A function, an aggregation, or an operator.
            Token::Word(word)
                if next == Some(&Token::Sign('('))
                    || matches!(next, Some(Token::Word(next)) if AGGREGATES.contains(&next.as_str()))
                    || WORDS.contains(&word.as_str()) =>
            {
                at += 1;
            }
            Token::Word(word) if GROUPING.contains(&word.as_str()) => at += 1,
            Token::Word(metric) if next == Some(&Token::Sign('{')) => {
                let (labels, end) = until(&tokens, at + 2, '}')?;
                names.selectors.push((metric.clone(), labels));
                at = end;
            }
            Token::Word(metric) => {
                names.selectors.push((metric.clone(), Vec::new()));
                at += 1;
            }
            Token::Sign('{') => return Err("selects without a metric's name".to_owned()),
            Token::Text(text) => {
                names.strings.insert(text.clone());
                at += 1;
            }
            Token::Sign(_) => at += 1,
        }
    }
    Ok(names)
}

/// The words up to a closing sign, and the place behind it.
fn until(tokens: &[Token], start: usize, end: char) -> Result<(Vec<String>, usize), String> {
    let length = tokens.iter().skip(start).position(|token| *token == Token::Sign(end));
    let close = start + length.ok_or_else(|| format!("no `{end}`"))?;
    let words = tokens[start..close].iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.clone()),
        Token::Text(_) | Token::Sign(_) => None,
    });
    Ok((words.collect(), close + 1))
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' | '\'' | '`' => tokens.push(Token::Text(quoted(first, &mut rest)?)),
            // Numbers and durations.
            '0'..='9' | '.' => while rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {},
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let mut word = c.to_string();
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == ':') {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Sign(c)),
        }
    }
    Ok(tokens)
}

fn quoted(end: char, rest: &mut impl Iterator<Item = char>) -> Result<String, String> {
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            c if c == end => return Ok(text),
            '\\' if end != '`' => text.extend(rest.next()),
            c => text.push(c),
        }
    }
    Err("a string does not end".to_owned())
}

/// The expressions inside an annotation's template: the texts that are printed into `query`, with `%q` filled in.
pub(super) fn queries(template: &str) -> Result<Vec<String>, String> {
    let mut queries = Vec::new();
    let mut rest = template;
    while let Some((_, after)) = rest.split_once("printf \"") {
        let mut letters = after.chars();
        let text = quoted('"', &mut letters)?;
        rest = letters.as_str();
        // Formats of numbers are printed, too, and are no queries.
        if text.contains("%q") {
            queries.push(text.replace("%q", "\"x\""));
        }
    }
    Ok(queries)
}

/// The labels that a template names as `$labels.NAME` or `label "NAME"`.
pub(super) fn template_labels(template: &str) -> BTreeSet<String> {
    let after = ["$labels.", "label \"", "sortByLabel \""];
    let word = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    after.iter().flat_map(|mark| template.split(mark).skip(1).map(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_names_metrics_and_labels() {
        let text = r#"sum by (job, le) (rate(a_bucket{x="1", y=~"b|c"}[5m])) * on (job) group_left 2 > bool b:c offset 5m
            or label_replace(up, "why", "$1", "", "") # comment d
            unless ignoring (z) time()"#;
        let names = names(text).unwrap();
        let selector = |name: &str, labels: &[&str]| {
            (name.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            names.selectors,
            [selector("a_bucket", &["x", "y"]), selector("b:c", &[]), selector("up", &[])]
        );
        assert_eq!(names.groupings, [vec!["job", "le"], vec!["job"], vec!["z"]]);
        assert!(names.strings.contains("why"));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        assert!(names(r#"{__name__=~"x.*"}"#).is_err());
        assert!(names("sum by (a").is_err());
        assert!(names("a{b='").is_err());
    }

    #[test]
    fn templates_name_queries_and_labels() {
        let template = r#"{{ with printf "a{b=%q, c=\"d\"}" $labels.job | query }}{{ . | first | label "e" }}{{ end }} {{ $value | printf "%.2f" }}"#;
        assert_eq!(queries(template).unwrap(), [r#"a{b="x", c="d"}"#]);
        assert_eq!(
            template_labels(template).into_iter().collect::<Vec<_>>(),
            ["e".to_owned(), "job".to_owned()]
        );
    }
}
