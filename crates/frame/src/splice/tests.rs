//! Edits against a plain model: serde_json's map, edited the same way.

use bytes::Bytes;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Map, Value, json};

use super::Draft;
use crate::{Frame, Id, Kind, Limits, Span};

fn draft(text: &str) -> Draft {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    Draft::new(Frame::parse(bytes, &Limits::default()).expect("a good message"))
}

fn text(draft: &Draft) -> String {
    let joined = draft.chunks().concat();
    assert_eq!(draft.to_bytes(), joined);
    assert_eq!(draft.len(), joined.len());
    let text = String::from_utf8(joined).expect("UTF-8");
    let checked = serde_json::from_str::<&serde_json::value::RawValue>(&text);
    assert!(checked.is_ok(), "{checked:?}: {text}");
    text
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

const CALL: &str = r#"{ "jsonrpc":"2.0", "id" : 1,"method":"tools/call","params":{"name":"a_b", "arguments":{"z":1e400,"\u0061":"\ud800"} ,"_meta":{"progressToken":7,"v/x":[1, 2]}}, "x":null }"#;

#[test]
fn without_edits_the_bytes_are_the_same_memory() {
    let draft = draft(CALL);
    assert!(draft.is_unchanged());
    assert_eq!(draft.to_bytes().as_ptr(), draft.frame().bytes().as_ptr());
    assert_eq!(draft.len(), CALL.len());
}

#[test]
fn frm_24_case_50_only_what_is_edited_changes() {
    let mut draft = draft(CALL);
    let name = draft.frame().name().expect("a name");
    draft.replace(name, bytes("\"b\""));
    draft.set_id(&Id::string("7-1"));
    draft.set_meta("progressToken", bytes("\"t\""));
    let expected = CALL
        .replace("\"a_b\"", "\"b\"")
        .replace("\"id\" : 1", "\"id\" : \"7-1\"")
        .replace("\"progressToken\":7", "\"progressToken\":\"t\"");
    assert_eq!(text(&draft), expected);
    let kept = draft.chunks().into_iter().filter(|chunk| {
        let original = draft.frame().bytes().as_ptr_range();
        original.contains(&chunk.as_ptr())
    });
    assert_eq!(kept.count(), 4, "what is kept is not copied");
}

#[test]
fn a_later_replacement_of_the_same_value_wins() {
    let mut draft = draft(CALL);
    let name = draft.frame().name().expect("a name");
    let params = draft.frame().params().expect("params");
    draft.replace(name, bytes("1"));
    draft.replace(name, bytes("2"));
    assert!(text(&draft).contains("\"name\":2,"));
    draft.set_member(params, "name", bytes("3"));
    assert!(text(&draft).contains("\"name\":3,"));
    draft.replace(name, bytes("4"));
    assert!(text(&draft).contains("\"name\":4,"));
    draft.remove_member(params, "name");
    assert!(text(&draft).contains(r#""params":{"arguments""#));
    draft.set_member(params, "name", bytes("5"));
    assert!(text(&draft).contains("\"name\":5,"));
}

#[test]
fn an_edit_inside_of_what_is_removed_goes_with_it() {
    let mut draft = draft(CALL);
    let params = draft.frame().params().expect("params");
    draft.set_meta("progressToken", bytes("1"));
    draft.set_meta("new", bytes("2"));
    let arguments = draft.frame().arguments().expect("arguments");
    draft.set_member(arguments, "z", bytes("0"));
    draft.remove_member(params, "_meta");
    draft.remove_member(params, "arguments");
    assert!(
        text(&draft).contains(r#""params":{"name":"a_b" }"#)
            || text(&draft).contains(r#""params":{"name":"a_b"}"#)
    );
    draft.remove_member(params, "name");
    draft.set_member(params, "k\"", bytes("true"));
    assert!(text(&draft).contains(r#""k\"":true}"#));
}

#[test]
fn missing_objects_are_made_on_the_way() {
    for start in [
        r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":null}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{ }}}"#,
    ] {
        let mut draft = draft(start);
        draft.set_meta("a", bytes("1"));
        draft.set_meta("b", bytes("2"));
        draft.set_meta("a", bytes("3"));
        draft.set_at(&["params", "cursor"], bytes("\"c\""));
        let edited: Value = serde_json::from_str(&text(&draft)).expect("JSON");
        assert_eq!(
            edited["params"],
            json!({"_meta": {"a": 3, "b": 2}, "cursor": "c"}),
            "{start}"
        );
        draft.remove_meta("a");
        draft.remove_at(&["params", "absent", "x"]);
        draft.remove_at(&["params", "cursor"]);
        let edited: Value = serde_json::from_str(&text(&draft)).expect("JSON");
        assert_eq!(edited["params"], json!({"_meta": {"b": 2}}), "{start}");
    }
}

#[test]
fn a_meta_that_was_set_or_replaced_as_a_whole_can_be_edited_further() {
    let mut first = draft(CALL);
    let meta = first.frame().meta().expect("meta");
    first.replace(meta, bytes(r#"{"p":1,"q":{"r":2}}"#));
    first.set_meta("s", bytes("3"));
    first.remove_at(&["params", "_meta", "q", "r"]);
    let edited: Value =
        serde_json::from_str(&text(&first).replace("1e400", "0").replace("\\ud800", ""))
            .expect("JSON");
    assert_eq!(edited["params"]["_meta"], json!({"p": 1, "q": {}, "s": 3}));

    let mut second = draft(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#);
    let params = second.frame().params().expect("params");
    second.set_member(params, "_meta", bytes(r#"{"p":1}"#));
    second.set_meta("s", bytes("3"));
    assert!(text(&second).contains(r#"{"_meta":{"p":1,"s":3}}"#));
}

/// Found by fuzzing: removing what is below a scalar that was put in made an empty object of it.
#[test]
fn nothing_is_removed_below_a_value_that_is_no_object() {
    let mut draft = draft(CALL);
    draft.set_at(&["params", "name"], bytes("[1]"));
    draft.remove_at(&["params", "name", "a"]);
    draft.set_at(&["params", "_meta"], bytes(" {\"a\":1,\"b\":2}"));
    draft.remove_at(&["params", "_meta", "a"]);
    draft.remove_at(&["params", "_meta", "b", "c"]);
    let edited = text(&draft);
    assert!(edited.contains(r#""name":[1],"#), "{edited}");
    assert!(edited.contains(r#""_meta":{"b":2}"#), "{edited}");
}

#[test]
fn of_duplicate_members_none_survives_an_edit() {
    let start = r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"\u0061":2,"b":3,"a":4}}"#;
    let mut set = draft(start);
    let result = set.frame().result().expect("a result");
    set.set_member(result, "a", bytes("9"));
    assert!(text(&set).contains(r#""result":{"b":3,"a":9}"#));
    let mut removed = draft(start);
    removed.remove_member(result, "a");
    assert!(text(&removed).contains(r#""result":{"b":3}"#));
}

#[test]
fn an_id_can_be_taken_out_and_put_in() {
    let mut draft = draft(CALL);
    draft.remove_id();
    let frame = |draft: &Draft| Frame::parse(draft.to_bytes(), &Limits::default()).expect("good");
    assert_eq!(frame(&draft).kind(), Kind::Notification);
    draft.set_id(&Id::integer(-5));
    assert_eq!(frame(&draft).id(), Some(Id::integer(-5)));
}

/// One edit of the property test: which object, which key, what to do.
#[derive(Clone, Debug)]
struct Step {
    inner: bool,
    key: String,
    value: Option<i32>,
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["a", "b", "c", "inner", "\u{e9}\"", "q\\"])
            .prop_map(str::to_owned)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let inner = any::<bool>();
    (
        inner,
        key(),
        prop_oneof![Just(None), any::<i32>().prop_map(Some)],
    )
        .prop_map(|(inner, key, value)| Step { inner, key, value })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(key(), any::<i32>().prop_map(Value::from), 0..6)
        .prop_map(|members| members.into_iter().collect())
}

fn apply(draft: &mut Draft, object: Span, step: &Step) {
    match step.value {
        Some(value) => draft.set_member(object, &step.key, Bytes::from(value.to_string())),
        None => draft.remove_member(object, &step.key),
    }
}

fn model(object: &mut Map<String, Value>, step: &Step) {
    match step.value {
        Some(value) => drop(object.insert(step.key.clone(), Value::from(value))),
        None => drop(object.remove(&step.key)),
    }
}

proptest! {
    /// Any edits of an object and of an object in it, in any order, come out as the same edits of a
    /// map; spaced out in different ways.
    #[test]
    fn edits_compose_in_any_order(
        outer in object(),
        inner in object(),
        steps in prop::collection::vec(step(), 0..12),
        pretty in any::<bool>(),
    ) {
        let mut result = outer;
        result.insert("inner".to_owned(), Value::Object(inner.clone()));
        let message = json!({"jsonrpc": "2.0", "id": 1, "result": result.clone()});
        let start = if pretty { serde_json::to_string_pretty(&message) } else { serde_json::to_string(&message) };
        let mut draft = draft(&start.expect("JSON"));
        let outer_span = draft.frame().result().expect("a result");
        let inner_span = draft.frame().member(outer_span, "inner").expect("the inner object");
        let mut edited_inner = inner;
        let mut replaced = false;
        for step in &steps {
            if step.inner {
                apply(&mut draft, inner_span, step);
                model(&mut edited_inner, step);
            } else {
                apply(&mut draft, outer_span, step);
                model(&mut result, step);
                replaced |= step.key == "inner";
            }
        }
        if !replaced {
            result.insert("inner".to_owned(), Value::Object(edited_inner));
        }
        let edited: Value = serde_json::from_str(&text(&draft)).expect("JSON");
        prop_assert_eq!(&edited["result"], &Value::Object(result));
        prop_assert_eq!(edited["id"].as_i64(), Some(1));
    }
}
