//! Reads members of a JSON request body the way a typed API server would: a wrong type is a 400 that names the place.

use serde_json::{Map, Value};

use crate::failure::Failure;

/// The body of a JSON request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// A member that is there and not null.
    pub(crate) fn any(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn string(self, name: &str) -> Result<Option<&'a str>, Failure> {
        self.read(name, "a valid string", Value::as_str)
    }

    pub(crate) fn flag(self, name: &str) -> Result<bool, Failure> {
        Ok(self.read(name, "a valid boolean", Value::as_bool)?.unwrap_or(false))
    }

    /// A whole number of at least `least`.
    pub(crate) fn count(self, name: &str, least: u64) -> Result<Option<u32>, Failure> {
        let Some(number) = self.read(name, "a valid integer", whole)? else { return Ok(None) };
        if number < least {
            return Err(Failure::invalid(name, format!("{name} must be at least {least}, got {number}.")));
        }
        Ok(Some(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    pub(crate) fn integer(self, name: &str) -> Result<Option<i64>, Failure> {
        self.read(name, "a valid integer", Value::as_i64)
    }

    /// A number within a range; checked and then of no effect.
    pub(crate) fn check_number(self, name: &str, range: std::ops::RangeInclusive<f64>) -> Result<(), Failure> {
        match self.read(name, "a valid number", Value::as_f64)? {
            Some(number) if !range.contains(&number) => {
                let text = format!("{name} must be in [{}, {}], got {number}.", range.start(), range.end());
                Err(Failure::invalid(name, text))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn object(self, name: &str) -> Result<Option<Fields<'a>>, Failure> {
        Ok(self.read(name, "a valid dictionary", Value::as_object)?.map(Fields))
    }

    pub(crate) fn list(self, name: &str) -> Result<Option<&'a [Value]>, Failure> {
        self.read(name, "a valid list", |value| value.as_array().map(Vec::as_slice))
    }

    /// A member that must be there.
    pub(crate) fn required<T>(self, name: &str, value: Option<T>) -> Result<T, Failure> {
        value.ok_or_else(|| Failure::malformed(name, "missing", "Field required"))
    }

    /// A string or a list of strings.
    pub(crate) fn strings(self, name: &str) -> Result<Vec<String>, Failure> {
        let wrong = || Failure::malformed(name, "string_type", "Input should be a valid string or list of strings");
        match self.any(name) {
            None => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one.clone()]),
            Some(Value::Array(many)) => {
                many.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    fn read<T>(self, name: &str, what: &str, get: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Failure> {
        let Some(value) = self.any(name) else { return Ok(None) };
        let wrong = || Failure::malformed(name, "type_error", &format!("Input should be {what}"));
        get(value).ok_or_else(wrong).map(Some)
    }
}

/// Whole numbers, also when written as `3.0`; negative ones as 0, which every least value refuses.
fn whole(value: &Value) -> Option<u64> {
    let from_float = || value.as_f64().filter(|f| f.fract() == 0.0).map(|f| f.max(0.0) as u64);
    value.as_u64().or_else(|| value.as_i64().map(|_| 0)).or_else(from_float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_types_name_the_member() {
        let body = json!({"stream": "yes", "max_tokens": "3", "n": 0, "stop": [1], "k": null, "t": 3.0, "m": -2});
        let fields = Fields(body.as_object().unwrap());
        for failure in [
            fields.flag("stream").unwrap_err(),
            fields.count("max_tokens", 1).unwrap_err(),
            fields.count("n", 1).unwrap_err(),
            fields.count("m", 0).map(|_| ()).err().unwrap_or_else(|| Failure::invalid("m", String::new())),
            fields.strings("stop").unwrap_err(),
        ] {
            assert_eq!(failure.status, http::StatusCode::BAD_REQUEST);
            assert!(failure.param.is_some());
        }
        assert_eq!(fields.count("k", 1).unwrap(), None);
        assert_eq!(fields.count("t", 1).unwrap(), Some(3));
    }
}
