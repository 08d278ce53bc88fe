//! Annotations that count, annotations that spoil a tool, and schemas that are none.

use super::super::Dom;
use super::{AnnotationError, annotations, object_schema};
use crate::agree::{Annotated, ValueKind};

fn annotated(schema: &str) -> Vec<Annotated> {
    annotations(schema.as_bytes()).expect("good annotations")
}

fn refused(schema: &str) -> AnnotationError {
    annotations(schema.as_bytes()).expect_err(schema)
}

#[test]
fn xmh_02_xmh_03_annotations_are_found_through_properties_only() {
    let schema = r#"{"type":"object","properties":{
        "b":{"type":["null","integer"],"x-mcp-header":"Size"},
        "a":{"type":"object","properties":{"properties":{"type":"string","x-mcp-header":"Deep-1"}}},
        "x-mcp-header":{"type":"number"},
        "c":{"type":"boolean","x-mcp-header":"dry","default":{"x-mcp-header":1},"enum":[{"x-mcp-header":""}]}
    }}"#;
    let entry = |path: &[&str], header: &str, kind| Annotated {
        path: path.iter().map(|key| (*key).to_owned()).collect(),
        header: header.to_owned(),
        kind,
    };
    let expected = [
        entry(&["a", "properties"], "Deep-1", ValueKind::Str),
        entry(&["c"], "dry", ValueKind::Bool),
        entry(&["b"], "Size", ValueKind::Int),
    ];
    assert_eq!(annotated(schema), expected);
    assert_eq!(annotated(r#"{"type":"object"}"#), []);
}

/// T02. Found by fuzzing: a client that takes the last of two members, as nearly all do, must not see
/// another annotation than the gateway.
#[test]
fn t02_of_duplicate_members_of_a_schema_the_last_counts() {
    let twice = r#"{"properties":{
        "a":{"type":"string","x-mcp-header":"First","x-mcp-head\u0065r":"Last"},
        "b":{"type":"integer","x-mcp-header":"Gone"},
        "b":{"type":"integer"}
    },"type":"array","type":"object"}"#;
    let found = annotated(twice);
    let names: Vec<&str> = found.iter().map(|one| one.header.as_str()).collect();
    assert_eq!(names, ["Last"]);
    assert!(object_schema(twice.as_bytes()).is_ok());
    // Beyond the few members that small objects keep in order, too.
    let many: String = (0..100).map(|n| format!(r#""k{n}":1,"#)).collect();
    let large = format!(r#"{{{many}"type":"object",{many}"type":"string"}}"#);
    assert!(object_schema(large.as_bytes()).is_err());
}

#[test]
fn xmh_03_an_annotation_anywhere_else_spoils_the_tool() {
    let property = r#"{"type":"string","x-mcp-header":"A"}"#;
    for schema in [
        property.to_owned(),
        format!(r#"{{"items":{property}}}"#),
        format!(r#"{{"properties":{{"l":{{"items":{property}}}}}}}"#),
        format!(r#"{{"allOf":[{{"properties":{{"a":{property}}}}}]}}"#),
        format!(r#"{{"if":{{"properties":{{"a":{property}}}}}}}"#),
        format!(r#"{{"$defs":{{"a":{property}}}}}"#),
        format!(r#"{{"patternProperties":{{"a":{property}}}}}"#),
        format!(r#"{{"properties":{{"a":{{"additionalProperties":{property}}}}}}}"#),
        format!(r#"{{"vendor":{{"properties":{{"a":{property}}}}}}}"#),
    ] {
        assert!(
            matches!(refused(&schema), AnnotationError::Unreachable { .. }),
            "{schema}"
        );
    }
}

#[test]
fn xmh_01_names_are_tokens_and_unique_in_any_case() {
    for name in [
        r#""""#,
        r#""a b""#,
        r#""a\n""#,
        "\"\u{e9}\"",
        r#""a:""#,
        "1",
        "null",
    ] {
        let schema =
            format!(r#"{{"properties":{{"a":{{"type":"string","x-mcp-header":{name}}}}}}}"#);
        assert!(
            matches!(refused(&schema), AnnotationError::Name { .. }),
            "{name}"
        );
    }
    let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"rEGION"}}}"#;
    assert!(matches!(refused(twice), AnnotationError::Repeated { .. }));
}

#[test]
fn xmh_02_other_types_are_refused() {
    for kind in [
        r#""type":"number","#,
        r#""type":["string","integer"],"#,
        r#""type":["null"],"#,
        r#""type":"null","#,
        r#""type":"object","#,
        r#""type":[],"#,
        "",
    ] {
        let schema = format!(r#"{{"properties":{{"a~/":{{{kind}"x-mcp-header":"A"}}}}}}"#);
        let error = refused(&schema);
        assert!(matches!(error, AnnotationError::Type { .. }), "{kind}");
        assert!(error.to_string().contains("/properties/a~0~1"), "{error}");
    }
}

#[test]
fn tol_01_case_26_what_is_no_object_schema_is_refused() {
    for schema in [
        r#"{"type":"int"}"#,
        r#"{"anyOf":[{"type":"object"}]}"#,
        r#"{"type":["object"]}"#,
        "null",
        "[]",
        "true",
        r#"{"type":"object","properties":[]}"#,
        r#"{"type":"object","properties":{"a":{"type":"int"}}}"#,
        r#"{"type":"object","properties":{"a":1}}"#,
        r#"{"type":"object","required":[1]}"#,
        r#"{"type":"object","properties":{"a":{"anyOf":[{"items":{"type":"str"}}]}}}"#,
        r#"{"type":"object""#,
    ] {
        assert!(object_schema(schema.as_bytes()).is_err(), "{schema}");
    }
    for schema in [
        r#"{"type":"object"}"#,
        r#"{"type":"object","properties":{"a":true,"type":{"type":["string","null"]}},"required":["a"]}"#,
        r##"{"type":"object","$defs":{"n":{"const":{"type":"int"}}},"properties":{"a":{"$ref":"#/$defs/n"}}}"##,
        r#"{"type":"object","properties":{"n":{"maximum":123456789012345678901234567890}},"x-own":{"type":5}}"#,
    ] {
        object_schema(schema.as_bytes()).unwrap_or_else(|error| panic!("{schema}: {error}"));
    }
}

#[test]
fn a_tree_answers_for_every_type() {
    let text = br#"{"s":"a","n":-1,"u":18446744073709551615,"f":1.5,"b":false,"z":null,"l":[1,"x"],"o":{"p":{"q":7}}}"#;
    let dom = Dom::parse(text).expect("JSON");
    let root = dom.root();
    let get = |key| root.get(key).expect("a member");
    assert_eq!(get("s").as_str(), Some("a"));
    assert_eq!((get("n").as_i64(), get("u").as_i64()), (Some(-1), None));
    assert!(
        get("f")
            .as_f64()
            .is_some_and(|number| (number - 1.5).abs() < f64::EPSILON)
    );
    assert_eq!(
        (get("b").as_bool(), get("z").is_null()),
        (Some(false), true)
    );
    assert_eq!(get("l").as_array().map(Iterator::count), Some(2));
    assert_eq!(
        root.at(&["o", "p", "q"]).and_then(|node| node.as_i64()),
        Some(7)
    );
    assert_eq!(root.as_object().map(Iterator::count), Some(8));
    assert!(root.is_object() && get("l").is_array() && get("s").is_str() && get("u").is_number());
    assert!(root.get("absent").is_none() && get("s").get("x").is_none());
}

#[test]
fn t09_a_document_nested_too_deeply_is_refused_before_it_is_walked() {
    let deep = "[".repeat(200_000);
    assert!(Dom::parse(deep.as_bytes()).is_err());
}
