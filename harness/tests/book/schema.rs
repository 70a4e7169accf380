//! A JSON schema as a page: a section for each of its types, in the order in which the file's own fields lead to them.
//!
//! It knows the keywords that the schemas of this repository use; what it does not know is a panic, so that nothing
//! is left out of the page silently.

use serde_json::{Map, Value};

/// What an integer's limits are called when they are those of its type.
const HUGE: u64 = u32::MAX as u64;

/// The page of a schema.
pub fn page(title: &str, of: &str, schema: &Value) -> String {
    let mut page = format!(
        "# {title}\n\n<!-- Written by `ALLRANKS_UPDATE=1 cargo test -p allranks --test book`; do not edit. -->\n\n\
         Every field, as `allranks schema {of}` has them. Unknown fields and values are errors, shown with line, column and a\n\
         hint. A type in the tables is a link to its section.\n\n"
    );
    let mut whole = schema.clone();
    // Its description is the heading.
    whole.as_object_mut().unwrap().remove("description");
    page += &section("The whole file", &whole, &schema["$defs"]);
    for name in reachable(schema) {
        page += "\n";
        page += &section(&name, &schema["$defs"][&name], &schema["$defs"]);
    }
    page
}

/// The types that have a section, in the order in which they are referred to, first those of the file's own fields.
fn reachable(schema: &Value) -> Vec<String> {
    let definitions = schema["$defs"].as_object().unwrap();
    let mut found: Vec<String> = Vec::new();
    let mut whole = schema.clone();
    whole.as_object_mut().unwrap().remove("$defs");
    let mut queue = vec![whole];
    while !queue.is_empty() {
        let mut names = Vec::new();
        queue.iter().for_each(|value| references(value, &mut names));
        queue.clear();
        for name in names {
            if !found.contains(&name) {
                queue.push(definitions[&name].clone());
                found.push(name);
            }
        }
    }
    found.retain(|name| wrapped(name).is_none());
    assert_eq!(
        found.len(),
        definitions
            .keys()
            .filter(|name| wrapped(name).is_none())
            .count(),
        "a type that nothing refers to"
    );
    found
}

/// The names of the types that a schema refers to.
fn references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref", Value::String(path)) => names.push(referred(path).to_owned()),
                    ("default", _) => {}
                    _ => references(value, names),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, names)),
        _ => {}
    }
}

/// The type of a reference; of one into a type's fields, that type.
fn referred(path: &str) -> &str {
    let name = path.strip_prefix("#/$defs/").expect(path);
    name.split('/').next().unwrap_or(name)
}

/// The type inside `OneOrMany_TYPE` or `Map_of_TYPE`, which have no section of their own.
fn wrapped(name: &str) -> Option<(&str, &str)> {
    let lists = name.strip_prefix("OneOrMany_").map(|inner| ("list", inner));
    lists.or_else(|| name.strip_prefix("Map_of_").map(|inner| ("map", inner)))
}

fn section(name: &str, schema: &Value, types: &Value) -> String {
    let fields = schema.as_object().unwrap();
    let mut text = format!("## {name}\n");
    if let Some(description) = fields.get("description") {
        text += &format!("\n{}\n", description.as_str().unwrap());
    }
    text += "\n";
    text += &body(fields, types);
    text
}

/// What a type may be: a table of fields, a table of values, or one line.
fn body(schema: &Map<String, Value>, types: &Value) -> String {
    if let Some(properties) = schema.get("properties") {
        let required: Vec<&str> = strings(schema.get("required"));
        let mut text = String::from("| field | type | default | meaning |\n|---|---|---|---|\n");
        for (name, property) in properties.as_object().unwrap() {
            let default = match property.get("default") {
                _ if required.contains(&name.as_str()) => "required".to_owned(),
                None | Some(Value::Null) => String::new(),
                Some(Value::Object(fields)) if !fields.is_empty() => "see its type".to_owned(),
                Some(value) => format!("`{value}`"),
            };
            text += &row(&[
                &format!("`{name}`"),
                &kind(property),
                &default,
                &meaning(property, types),
            ]);
        }
        return text;
    }
    let choices = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    if let Some(choices) = choices {
        let mut text = String::from("| value | meaning |\n|---|---|\n");
        for choice in choices.as_array().unwrap() {
            text += &row(&[&kind(choice), &meaning(choice, types)]);
        }
        return text;
    }
    format!("Type: {}\n", kind(&Value::Object(schema.clone())))
}

/// A type in a cell.
fn kind(schema: &Value) -> String {
    let Value::Object(fields) = schema else {
        return "anything".to_owned();
    };
    if let Some(path) = fields.get("$ref") {
        return link(referred(path.as_str().unwrap()));
    }
    if let Some(value) = fields.get("const") {
        return format!("`{}`", value.as_str().unwrap());
    }
    if fields.contains_key("enum") {
        return codes(&strings(fields.get("enum")));
    }
    let choices = fields.get("anyOf").or_else(|| fields.get("oneOf"));
    if let Some(choices) = choices {
        let choices = choices.as_array().unwrap().iter().map(kind);
        let choices: Vec<String> = choices.filter(|one| one != "null").collect();
        return choices.join(" or ");
    }
    match fields.get("type") {
        Some(Value::String(name)) => simple(name, fields),
        Some(Value::Array(_)) => {
            let names = strings(fields.get("type")).into_iter();
            let names: Vec<String> = names
                .filter(|name| *name != "null")
                .map(|name| simple(name, fields))
                .collect();
            names.join(" or ")
        }
        Some(other) => panic!("type {other}"),
        None => "anything".to_owned(),
    }
}

fn simple(name: &str, fields: &Map<String, Value>) -> String {
    match name {
        "string" => match fields.get("pattern") {
            Some(pattern) => format!("string that matches `{}`", pattern.as_str().unwrap()),
            None => "string".to_owned(),
        },
        "boolean" => "`true` or `false`".to_owned(),
        "null" => "null".to_owned(),
        "array" => match fields.get("items") {
            Some(items) => format!("list of {}", kind(items)),
            None => "list".to_owned(),
        },
        "integer" | "number" => {
            let limit = |key| fields.get(key).and_then(Value::as_u64);
            match (
                limit("minimum"),
                limit("maximum").filter(|most| *most < HUGE),
            ) {
                (Some(least), Some(most)) => format!("{name}, {least} to {most}"),
                (Some(least), None) => format!("{name}, at least {least}"),
                (None, Some(most)) => format!("{name}, at most {most}"),
                (None, None) => name.to_owned(),
            }
        }
        "object" => object(fields),
        other => panic!("type {other}"),
    }
}

/// An object within a cell: its keys, or what each of its values is.
fn object(fields: &Map<String, Value>) -> String {
    match (fields.get("properties"), fields.get("additionalProperties")) {
        (Some(Value::Object(properties)), _) => {
            let keys: Vec<&str> = properties.keys().map(String::as_str).collect();
            let kinds: Vec<String> = properties.values().map(kind).collect();
            match kinds.first() {
                None => "`{}`".to_owned(),
                Some(first) if kinds.iter().all(|kind| kind == first) && first.starts_with('[') => {
                    format!("fields of {first}: {}", codes(&keys))
                }
                Some(_) => format!("`{{{}}}`", keys.join(", ")),
            }
        }
        (None, Some(values @ Value::Object(_))) => format!("names, each with {}", kind(values)),
        _ => "`{}`".to_owned(),
    }
}

/// A type's name in a cell: a link to its section.
fn link(name: &str) -> String {
    match wrapped(name) {
        Some(("list", inner)) => format!("{0}, or a list of {0}", link(inner)),
        Some((_, inner)) => format!("names, each with {}", link(inner)),
        None if name.starts_with(char::is_uppercase) => {
            format!("[{name}](#{})", name.to_lowercase())
        }
        None if name == "uint32" => "integer".to_owned(),
        None => name.to_owned(),
    }
}

fn codes(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn strings(values: Option<&Value>) -> Vec<&str> {
    let values = values.and_then(Value::as_array);
    values
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// What a field or a value means: its own description, or else the first sentence of its type's.
fn meaning(schema: &Value, types: &Value) -> String {
    let own = schema["description"].as_str();
    let of_type = || {
        let name = referred(schema["$ref"].as_str()?);
        let text = types[name]["description"].as_str()?;
        let (first, _) = text.split_once(". ").unwrap_or((text, ""));
        Some(format!("{}.", first.trim_end_matches('.')))
    };
    own.map(str::to_owned).or_else(of_type).unwrap_or_default()
}

fn row(cells: &[&str]) -> String {
    let clean = |cell: &&str| cell.replace('\n', " ").replace('|', "\\|");
    let cells: Vec<String> = cells.iter().map(clean).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
fn small() -> Value {
    serde_json::json!({
        "description": "A file.",
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "string", "description": "Its name,\nor a|b."},
            "sizes": {"$ref": "#/$defs/OneOrMany_uint32", "default": [1, 2]},
            "then": {"$ref": "#/$defs/When"},
            "when": {"anyOf": [{"$ref": "#/$defs/When"}, {"type": "null"}], "default": null},
        },
        "$defs": {
            "OneOrMany_uint32": {"anyOf": [{"type": "integer"}, {"type": "array"}]},
            "When": {"description": "A time. Of a day.", "oneOf": [
                {"const": "before", "description": "Earlier."},
                {"type": "integer", "minimum": 1, "maximum": 9}
            ]}
        }
    })
}

#[test]
fn a_schema_becomes_tables() {
    let page = page("Small files", "small", &small());
    let (_, tables) = page.split_once("## The whole file").unwrap();
    assert_eq!(
        tables,
        "\n\n| field | type | default | meaning |\n|---|---|---|---|\n\
         | `id` | string | required | Its name, or a\\|b. |\n\
         | `sizes` | integer, or a list of integer | `[1,2]` |  |\n\
         | `then` | [When](#when) |  | A time. |\n\
         | `when` | [When](#when) |  |  |\n\
         \n## When\n\nA time. Of a day.\n\n| value | meaning |\n|---|---|\n\
         | `before` | Earlier. |\n| integer, 1 to 9 |  |\n"
    );
}

#[test]
#[should_panic(expected = "a type that nothing refers to")]
fn a_type_is_not_left_out() {
    let mut schema = small();
    schema["$defs"]["Lost"] = serde_json::json!({"type": "string"});
    page("Small files", "small", &schema);
}
