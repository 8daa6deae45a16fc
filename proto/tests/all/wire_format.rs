//! Keeps the wire format from changing by accident: what the first version said must stay true for ever.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// One line for every message field, enum value and call.
fn listing() -> String {
    let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).expect("the descriptor decodes");
    let mut lines = BTreeSet::new();
    for file in set
        .file
        .iter()
        .filter(|file| file.package() == "cloudstack.broker.v1")
    {
        file.message_type
            .iter()
            .for_each(|message| list_message("", message, &mut lines));
        file.enum_type
            .iter()
            .for_each(|item| list_enum("", item, &mut lines));
        for service in &file.service {
            for call in &service.method {
                lines.insert(format!(
                    "rpc {}/{} {} -> {}",
                    service.name(),
                    call.name(),
                    call.input_type(),
                    call.output_type()
                ));
            }
        }
    }
    lines.into_iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").expect("writing to a string");
        text
    })
}

fn list_message(outer: &str, message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    let name = format!("{outer}{}", message.name());
    for field in &message.field {
        let oneof = field.oneof_index.filter(|_| !field.proto3_optional());
        let group = oneof
            .and_then(|i| message.oneof_decl.get(usize::try_from(i).ok()?))
            .map_or("", |o| o.name());
        lines.insert(format!(
            "field {name} {:03} {} {} {:?} {} {group}",
            field.number(),
            field.name(),
            field.type_name(),
            field.r#type(),
            field.label().as_str_name(),
        ));
    }
    message
        .nested_type
        .iter()
        .for_each(|inner| list_message(&format!("{name}."), inner, lines));
    message
        .enum_type
        .iter()
        .for_each(|inner| list_enum(&format!("{name}."), inner, lines));
}

fn list_enum(outer: &str, item: &EnumDescriptorProto, lines: &mut BTreeSet<String>) {
    for value in &item.value {
        lines.insert(format!(
            "enum {outer}{} {:03} {}",
            item.name(),
            value.number(),
            value.name()
        ));
    }
}

#[test]
fn nothing_that_the_first_version_had_has_changed_or_gone() {
    let now = listing();
    let now: BTreeSet<&str> = now.lines().collect();
    let missing: Vec<&str> = include_str!("first_version.txt")
        .lines()
        .filter(|line| !now.contains(line))
        .collect();
    assert!(
        missing.is_empty(),
        "the wire format of the first version changed: {missing:#?}"
    );
}

#[test]
fn every_change_of_the_wire_format_is_seen_in_review() {
    insta::assert_snapshot!("wire_format", listing());
}

#[test]
fn unknown_fields_of_a_newer_peer_are_ignored() {
    // Field 1999, length-delimited, as a newer peer might send it.
    let mut bytes = proto::v1::LoadBalancerRef {
        uid: "u".into(),
        namespace: "n".into(),
        name: "s".into(),
    }
    .encode_to_vec();
    bytes.extend_from_slice(&[0xfa, 0x7c, 0x03, b'n', b'e', b'w']);
    let read = proto::v1::LoadBalancerRef::decode(bytes.as_slice()).expect("decodes");
    assert_eq!(read.name, "s");
}

#[test]
fn an_unknown_enum_value_reads_as_unspecified() {
    let port = proto::v1::WishPort {
        protocol: 99,
        ..Default::default()
    };
    assert_eq!(port.protocol(), proto::v1::wish_port::Protocol::Unspecified);
}
