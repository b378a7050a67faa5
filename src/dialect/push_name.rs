//! The resource names of push configurations in 0.3, `tasks/{t}/pushNotificationConfigs/{c}` (wire
//! §4.2).

const TASKS: &[u8] = b"tasks/";
const CONFIGS: &[u8] = b"/pushNotificationConfigs";

/// The name of a configuration; with `None` the name of its task.
pub fn push_name(task_id: &[u8], id: Option<&[u8]>) -> Vec<u8> {
    let mut name = [TASKS, task_id].concat();
    if let Some(id) = id {
        name.extend_from_slice(CONFIGS);
        name.push(b'/');
        name.extend_from_slice(id);
    }
    name
}

/// The task id and the configuration id in a name. The second is empty if the name is that of a
/// task, or of all configurations of a task. A bare id is a task id.
pub fn push_ids(name: &[u8]) -> (&[u8], &[u8]) {
    let rest = name.strip_prefix(TASKS).unwrap_or(name);
    let id_after = |at: usize| rest[at..].strip_prefix(CONFIGS)?.strip_prefix(b"/");
    let found = (0..rest.len()).rev().find_map(|at| Some((&rest[..at], id_after(at)?)));
    found.unwrap_or((rest.strip_suffix(CONFIGS).unwrap_or(rest), b""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_resource_name_is_built_and_parsed() {
        for (name, task_id, id) in [
            ("tasks/t/pushNotificationConfigs/c", "t", "c"),
            ("tasks/t/pushNotificationConfigs/c/d", "t", "c/d"),
            ("tasks/t/pushNotificationConfigs/", "t", ""),
            ("tasks/t/pushNotificationConfigs", "t", ""),
            ("tasks/t/pushNotificationConfigsX", "t/pushNotificationConfigsX", ""),
            ("tasks/t", "t", ""),
            ("t", "t", ""),
            ("tasks/", "", ""),
            ("", "", ""),
        ] {
            assert_eq!(push_ids(name.as_bytes()), (task_id.as_bytes(), id.as_bytes()), "{name}");
        }
        assert_eq!(push_name(b"t", Some(b"c")), b"tasks/t/pushNotificationConfigs/c");
        assert_eq!(push_name(b"t", None), b"tasks/t");
    }
}
