//! The calls of kube-apiserver's storage.

use etcd_client::{
    Client, Compare, CompareOp, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) value: String,
    /// Its resource version.
    pub(super) revision: i64,
}

/// Where a list goes on: its revision and the first key of the next page.
pub(super) type Continue = (i64, String);

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    /// The resource version of the list.
    pub(super) revision: i64,
    /// Objects after this page.
    pub(super) remaining: usize,
    pub(super) next: Option<Continue>,
}

/// What a write did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// At this revision.
    At(i64),
    /// Nothing: the object is not at the expected revision, but as this, or missing.
    Conflict(Option<Object>),
}

impl Written {
    pub(super) fn revision(self) -> i64 {
        match self {
            Self::At(revision) => revision,
            Self::Conflict(current) => panic!("conflict: {current:?}"),
        }
    }
}

/// A client of the store.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) client: Client,
}

impl Object {
    pub(super) fn new(kv: &KeyValue) -> Self {
        Self {
            key: kv.key_str().unwrap().into(),
            value: kv.value_str().unwrap().into(),
            revision: kv.mod_revision(),
        }
    }
}

impl Storage {
    /// The object, and the revision of the read.
    pub(super) async fn get(&mut self, key: &str) -> (Option<Object>, i64) {
        let read = self.client.get(key, None).await.unwrap();
        let revision = read.header().unwrap().revision();
        (read.kvs().first().map(Object::new), revision)
    }

    /// Writes the object if it is at a revision; 0 is that it is missing. A lease of 0 is none.
    pub(super) async fn put(
        &mut self,
        key: &str,
        value: &str,
        expected: i64,
        lease: i64,
    ) -> Written {
        let options = PutOptions::new().with_lease(lease);
        self.write(key, expected, TxnOp::put(key, value, Some(options)))
            .await
    }

    pub(super) async fn create(&mut self, key: &str, value: &str) -> Written {
        self.put(key, value, 0, 0).await
    }

    /// Deletes the object if it is at a revision.
    pub(super) async fn delete(&mut self, key: &str, expected: i64) -> Written {
        self.write(key, expected, TxnOp::delete(key, None)).await
    }

    async fn write(&mut self, key: &str, expected: i64, write: TxnOp) -> Written {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, expected);
        let txn = Txn::new()
            .when([unchanged])
            .and_then([write])
            .or_else([TxnOp::get(key, None)]);
        let answered = self.client.txn(txn).await.unwrap();
        if answered.succeeded() {
            return Written::At(answered.header().unwrap().revision());
        }
        let Some(TxnOpResponse::Get(read)) = answered.op_responses().into_iter().next() else {
            panic!("no read in {answered:?}")
        };
        Written::Conflict(read.kvs().first().map(Object::new))
    }

    /// Changes the object until no other client is in between, from a suggested state on. Writes nothing if the value
    /// stays as it is. Returns the revision of the object, and the number of conflicts.
    pub(super) async fn update(
        &mut self,
        suggested: Object,
        change: impl Fn(&str) -> String,
    ) -> (i64, usize) {
        let (mut current, mut conflicts) = (suggested, 0);
        loop {
            let value = change(&current.value);
            if value == current.value {
                return (current.revision, conflicts);
            }
            match self.put(&current.key, &value, current.revision, 0).await {
                Written::At(revision) => return (revision, conflicts),
                Written::Conflict(Some(newer)) => current = newer,
                Written::Conflict(None) => panic!("{} is gone", current.key),
            }
            conflicts += 1;
        }
    }

    /// A page of the objects below a prefix. Without `from` it is the first page, at the current revision.
    pub(super) async fn page(
        &mut self,
        prefix: &str,
        limit: usize,
        from: Option<Continue>,
    ) -> Result<Page, Error> {
        let (revision, start) = from.unwrap_or((0, prefix.to_owned()));
        let options = GetOptions::new()
            .with_range(prefix_end(prefix))
            .with_limit(i64::try_from(limit).unwrap())
            .with_revision(revision);
        let read = self.client.get(start, Some(options)).await?;
        let objects: Vec<Object> = read.kvs().iter().map(Object::new).collect();
        let current = read.header().unwrap().revision();
        let revision = if revision == 0 { current } else { revision };
        let next = objects.last().filter(|_| read.more());
        let next = next.map(|last| (revision, format!("{}\0", last.key)));
        let count = usize::try_from(read.count()).unwrap();
        Ok(Page {
            remaining: count - objects.len(),
            objects,
            revision,
            next,
        })
    }

    /// All objects below a prefix, in pages at one revision.
    pub(super) async fn list(&mut self, prefix: &str, limit: usize) -> (Vec<Object>, i64) {
        let mut page = self.page(prefix, limit, None).await.unwrap();
        let mut objects = Vec::new();
        loop {
            objects.append(&mut page.objects);
            let Some(next) = page.next else {
                return (objects, page.revision);
            };
            page = self.page(prefix, limit, Some(next)).await.unwrap();
        }
    }

    /// The number of objects below a prefix.
    pub(super) async fn count(&mut self, prefix: &str) -> i64 {
        let options = GetOptions::new().with_prefix().with_count_only();
        let counted = self.client.get(prefix, Some(options)).await.unwrap();
        counted.count()
    }
}

/// The end of the range of a prefix that ends with `/`.
fn prefix_end(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap())
}
