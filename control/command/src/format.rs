//! The `-o` formats: JSON and YAML for programs, columns or names for people.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::CommandError;

/// The value of `-o`; without it, a table of the usual columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table of all columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Only the objects' names
    Name,
}

/// The output flags of commands that print lists.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ListFormat {
    /// Output format
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    /// Print no column headings
    #[arg(long)]
    pub no_headers: bool,
}

/// Writes `value` as YAML if `format` says so, else as JSON.
pub fn write_value(
    out: &mut dyn Write,
    value: &Value,
    format: OutputFormat,
) -> Result<(), CommandError> {
    let text = match format {
        OutputFormat::Yaml => {
            serde_saphyr::to_string(value).map_err(|error| CommandError::encoding(&error))?
        }
        _ => serde_json::to_string_pretty(value).map_err(|error| CommandError::encoding(&error))?,
    };
    Ok(writeln!(out, "{}", text.trim_end())?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_written_as_json_or_yaml_with_one_line_end() {
        let written = |format| {
            let mut out = Vec::new();
            write_value(&mut out, &json!({"kind": "List"}), format).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(OutputFormat::Json), "{\n  \"kind\": \"List\"\n}\n");
        assert_eq!(written(OutputFormat::Yaml), "kind: List\n");
    }
}
