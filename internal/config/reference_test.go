package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// units maps each kind to the unit of a plain number.
var units = map[Kind]string{
	Duration: "seconds, or a duration", Size: "bytes, with a unit", Days: "days",
	Megabytes: "MiB",
}

// unit returns the unit of a plain number.
func (s Setting) unit() string {
	if s.Key == MaxPushReservation {
		return "percent"
	}
	return units[s.Kind]
}

// TestReferenceOfSettings: the page of the settings has the tables of this package.
func TestReferenceOfSettings(t *testing.T) {
	for _, s := range []struct {
		heading, text string
		table         Table
	}{
		{"Controller", "Of `buildyard controller` and `buildyard up`.", ControllerTable},
		{
			"Registry",
			"Of `buildyard registry`. A registry in the process of a controller has the settings of the controller.",
			RegistryTable,
		},
		{"Mirror of a registry", "Of `buildyard registry mirror`.", MirrorTable},
		{"Commands that call a controller", "Of every `buildyard` command that calls a controller.", ClientTable},
		{
			"Commands for a registry's storage", "Of `buildyard registry check`, `repair`, `gc` and `stats`.",
			StorageTable,
		},
	} {
		referencetest.Section(t, "settings.md", s.heading, s.text+"\n\n"+reference(s.table))
	}
}

// reference returns the rows of a table in Markdown.
func reference(table Table) string {
	var b strings.Builder
	b.WriteString("| setting | flag | type | unit | default | meaning |\n|---|---|---|---|---|---|\n")
	for _, s := range table {
		names, flags := code(s.Key), code("--"+s.Flag)
		if s.Alias != "" {
			names += ", " + code(s.Alias)
		}
		if s.FileFlag != "" {
			flags += ", " + code("--"+s.FileFlag)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			names, flags, kinds[s.Kind].name, s.unit(), s.defaults(), referencetest.Cell(s.Help))
	}
	return b.String()
}

// defaults returns the default of a setting, the same on every machine.
func (s Setting) defaults() string {
	text := code(s.Default)
	for _, service := range []string{"controller", "registry"} {
		if s.Default == defaultDataDir(service) {
			text = fmt.Sprintf("`/var/lib/buildyard/%[1]s` as root, else `~/.local/share/buildyard/%[1]s`", service)
		}
	}
	if s.NoAuthDefault != "" {
		text += "; while authentication is off " + code(s.NoAuthDefault)
	}
	return text
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
