package config

import (
	"bytes"
	"fmt"
	"strings"
)

// EnvironmentFile returns a file for EnvironmentFile= of systemd that has every setting of a table as a comment, with
// its meaning and default. The text is the same on every machine; head is the comment at its begin.
func EnvironmentFile(table Table, head string) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(strings.TrimSpace(head)) {
		b.WriteString("# " + line)
	}
	b.WriteString("\n")
	for _, s := range table {
		fmt.Fprintf(&b, "\n# %s (%s)\n", strings.ReplaceAll(s.Help, "\n", " "), kinds[s.Kind].name)
		if s.Kind.isSecret() {
			fmt.Fprintf(&b, "#%s_FILE=\n", s.Key)
			continue
		}
		fmt.Fprintf(&b, "#%s=%s\n", s.Key, s.serviceDefault())
	}
	return b.Bytes()
}

// serviceDefault returns the default of a setting for a service of the system.
func (s Setting) serviceDefault() string {
	for _, service := range []string{"controller", "registry"} {
		if s.Default == defaultDataDir(service) {
			return "/var/lib/buildyard/" + service
		}
	}
	return s.Default
}
