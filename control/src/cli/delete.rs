//! `dormouse delete`: removes objects; an app's pods and VIP go with it.

use clap::Args;
use http::Method;

use super::{
    Context, Exit, Failure, apply,
    context::OBJECT,
    noun::{self, Noun},
};

/// What to delete.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  dormouse delete app web
  dormouse delete app/web app/api
  dormouse delete -f deploy/examples/docs.yaml")]
pub struct Arguments {
    /// NOUN NAME... or NOUN/NAME...
    #[arg(required_unless_present = "filenames", conflicts_with = "filenames")]
    what: Vec<String>,
    /// What these manifests describe; - is standard input.
    #[arg(short, long = "filename", value_name = "FILE")]
    filenames: Vec<String>,
    /// What does not exist counts as deleted.
    #[arg(long)]
    ignore_not_found: bool,
}

pub(super) async fn run(arguments: Arguments, context: &mut Context) -> Result<Exit, Failure> {
    for (noun, namespace, name) in targets(&arguments, context)? {
        let place = if noun.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.clone()
        };
        let (path, what) = (
            noun.path_of(&namespace, &name),
            format!("delete {} {place}", noun.singular),
        );
        match context
            .request(Method::DELETE, &path, OBJECT, (OBJECT, Vec::new()), &what)
            .await
        {
            Ok(_) => writeln!(context.out, "{}/{name} deleted", noun.singular)?,
            Err(failure) if failure.exit == Exit::NotFound && arguments.ignore_not_found => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(Exit::Yes)
}

fn targets(
    arguments: &Arguments,
    context: &Context,
) -> Result<Vec<(Noun, String, String)>, Failure> {
    if arguments.what.is_empty() {
        let documents = apply::read(&arguments.filenames, &context.namespace)?;
        return Ok(documents
            .into_iter()
            .map(|one| (one.noun, one.namespace, one.name))
            .collect());
    }
    let (noun, names) = noun::objects(&arguments.what)?;
    if names.is_empty() {
        let message = format!("cannot delete: which {}?", noun.singular);
        let hint = format!("dormouse delete {} NAME", noun.singular);
        return Err(Failure::new(
            super::codes::Code::Kind,
            Exit::Usage,
            message,
            hint,
        ));
    }
    Ok(names
        .into_iter()
        .map(|name| (noun, context.namespace.clone(), name))
        .collect())
}
