//! The reference page for users, made from the table.

use std::fmt::Write as _;

use super::table::{Annotation, Direction, Kind, TABLE};

const HEAD: &str = "# Annotations of a Service

What can be said about a load balancer in the annotations of a Service of `type: LoadBalancer`. This page is made from the
table that the agent reads them with.

A value that can't be read is refused: the Service gets one event that names the annotation, what serves already [goes
on](../guides/services.md#what-cant-be-had), and nothing is acquired. Blanks around a value don't count, and an empty value counts as not set unless the
annotation says otherwise.

";

/// The page in Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    overview(&mut page);
    for annotation in TABLE {
        section(&mut page, annotation);
    }
    page
}

fn overview(page: &mut String) {
    page.push_str("| Annotation | Written by | Value | Default |\n| --- | --- | --- | --- |\n");
    for annotation in TABLE {
        let Annotation { name, default, .. } = annotation;
        let _infallible = writeln!(
            page,
            "| [`{name}`](#{}) | {} | {} | {default} |",
            anchor(name),
            writer(annotation.direction),
            value(annotation.kind)
        );
    }
}

fn section(page: &mut String, annotation: &Annotation) {
    let Annotation {
        name,
        default,
        backends,
        effect,
        change,
        example,
        ..
    } = annotation;
    let _infallible = write!(
        page,
        "\n## `{name}`\n\n{effect}\n\n- Written by: {}\n- Value: {}\n- Default: {default}\n- Backends: {backends}\n- On a live Service: {change}\n",
        writer(annotation.direction),
        value(annotation.kind)
    );
    if !example.is_empty() {
        let _infallible = write!(
            page,
            "\n```yaml\nmetadata:\n  annotations:\n    {name}: \"{example}\"\n```\n"
        );
    }
}

const fn writer(direction: Direction) -> &'static str {
    match direction {
        Direction::Input => "you",
        Direction::Output => "the controller",
        Direction::Ignored => "nobody",
    }
}

fn value(kind: Kind) -> String {
    match kind {
        Kind::Boolean => "`true` or `false`".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::HostName => "host name".to_owned(),
        Kind::Address => "IPv4 address".to_owned(),
        Kind::Networks => "networks in CIDR notation, with commas between them".to_owned(),
        Kind::Word(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

/// The anchor that Markdown renderers make of a heading: letters, digits and dashes, in lower case.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .collect::<String>()
        .to_ascii_lowercase()
}
