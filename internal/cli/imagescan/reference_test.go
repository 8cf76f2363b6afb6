package imagescan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfCommands: the page of the program is the help of its commands.
func TestReferenceOfCommands(t *testing.T) {
	referencetest.Page(t, "cli-imagescan.md", cli.Reference(newCommand(Streams{}), referencetest.Notice))
}

// keys describes each key of a configuration file: type, unit, default, meaning.
var keys = map[string][4]string{
	"ignore-packages": {
		"list", "", "`" + match.DefaultIgnoredPackage +
			"`",
		"CPEs in URI form whose packages are not reported, compared exactly; a list with the single entry `\"\"` " +
			"ignores nothing",
	},
	"ignore-cves": {"list", "", "", "vulnerabilities that are not reported, by id"},
	"ignore": {
		"list of rules", "", "",
		"findings that are not reported: `id` (of a CVE or an advisory), `package` (pattern of the name or of " +
			"type/name), `path` (pattern), at least one of them; `reason`; `expires` (last day, `2026-12-31`)",
	},
	"exclude": {"list", "", "", "patterns of paths that are not scanned, in addition to `--exclude`"},
	"db-path": {
		"path", "", "in the user's cache directory", "vulnerability database; the flag `--db-path` takes precedence",
	},
	"db-update-url": {"URL", "", "", "listing from which the database is updated; without it nothing is updated"},
	"db-update-timeout": {"duration", "", "`" + defaultUpdateTimeout.String() +
		"`", "limit of the update before a scan"},
	"db-key":   {"path", "", "", "file with the public key that listings and databases must be signed with"},
	"log-file": {"path", "", "", "file of the program's log; without it there is no log"},
	"license-file": {
		"path", "", "`scanner.lic` in the current directory",
		"license file; the flag `--license-file` takes precedence",
	},
}

// TestReferenceOfSettings: the page of the settings has every key of the configuration file.
func TestReferenceOfSettings(t *testing.T) {
	var b strings.Builder
	b.WriteString("Keys of the YAML file that `imagescan --config` names. An unknown key is refused.\n\n")
	b.WriteString("| key | type | unit | default | meaning |\n|---|---|---|---|---|\n")
	fields := reflect.TypeFor[settings]()
	for field := range fields.Fields() {
		key := field.Tag.Get("yaml")
		about, ok := keys[key]
		if !ok {
			t.Errorf("key %s is not described", key)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", key, about[0], about[1], about[2], about[3])
	}
	if len(keys) != fields.NumField() {
		t.Errorf("%d keys are described, the file has %d", len(keys), fields.NumField())
	}
	referencetest.Section(t, "settings.md", "Image scanner", b.String())
}
