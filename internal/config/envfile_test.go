package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvironmentFile: the file has every setting once, and what it has is valid when it is no comment.
func TestEnvironmentFile(t *testing.T) {
	for name, table := range map[string]Table{"controller": ControllerTable, "registry": RegistryTable} {
		text := string(EnvironmentFile(table, "Settings.\nOf a service."))
		if !strings.HasPrefix(text, "# Settings.\n# Of a service.\n\n# ") {
			t.Errorf("%s begins with %q", name, text[:40])
		}
		settings := 0
		var active strings.Builder
		for line := range strings.Lines(text) {
			key, value, isSetting := strings.Cut(strings.TrimPrefix(line, "#"), "=")
			switch {
			case line != "\n" && !strings.HasPrefix(line, "#"):
				t.Errorf("%s: %q is active", name, line)
			case !isSetting || strings.Contains(key, " "):
				continue
			}
			settings++
			if !strings.HasSuffix(key, "_FILE") && strings.TrimSpace(value) != "" {
				active.WriteString(strings.TrimPrefix(line, "#"))
			}
		}
		if settings != len(table) {
			t.Errorf("%s: %d settings, want %d", name, settings, len(table))
		}
		file := filepath.Join(t.TempDir(), "settings")
		if err := os.WriteFile(file, []byte(active.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(file, table); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
