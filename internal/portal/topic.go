package portal

import "strings"

// Topics are kinds of records of which some have changed.
type Topics uint8

// The topics.
const (
	Instances Topics = 1 << iota
	Nodes
	Templates
	Groups
	Access // keys and permissions
	Events
	CacheJobs
	Pools // warm pools and their sums; their standbys are instances
)

var topicNames = []string{"instances", "nodes", "templates", "groups", "access", "events", "cache_jobs", "pools"}

// String returns the names of topics, with commas.
func (t Topics) String() string {
	var names []string
	for i, name := range topicNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// parseTopics parses what String has written. It ignores unknown names.
func parseTopics(text string) (t Topics) {
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range topicNames {
			if name == known {
				t |= 1 << i
			}
		}
	}
	return t
}
