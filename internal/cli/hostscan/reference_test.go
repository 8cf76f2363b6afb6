package hostscan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfCommands: the page of the program is the help of its commands.
func TestReferenceOfCommands(t *testing.T) {
	referencetest.Page(t, "cli-hostscan.md", cli.Reference(newCommand(Streams{}), referencetest.Notice))
}

// keys describes each key of a configuration file: type and meaning. Defaults are read from the
// code.
var keys = map[string][2]string{
	"log-level":           {"string", "minimum level that is logged: debug, info, warn or error"},
	"log-to-file":         {"bool", "log to `log-file`; false: to standard error"},
	"log-file":            {"path", "log; at most four files of 10 MiB are kept"},
	"vuln-db-path":        {"path", "vulnerability database"},
	"disable-auto-update": {"bool", "do not update the database automatically"},
	"ignore-packages": {
		"list", "CPEs in URI form whose packages are not reported; a list with the single entry `\"\"` ignores nothing",
	},
	"ignore-cves":        {"list", "vulnerabilities that are not reported, by id"},
	"min-score":          {"number", "lowest CVSS score that is reported, 0 to 10"},
	"min-severity":       {"string", "lowest severity that is reported; low includes vulnerabilities without a score"},
	"listen-addr":        {"address", "address of the API"},
	"db-backend-path":    {"path", "package inventory of this host"},
	"db-update-interval": {"duration", "time between two checks for a newer database, at least 1m"},
	"db-update-url":      {"URL", "listing from which the database is updated; without it nothing is updated"},
	"db-key":             {"path", "file with the public key that listings and databases must be signed with"},
	"token":              {"secret", "token that callers must present; the file must then be private"},
	"token-file":         {"path", "file with that token; it is created when it does not exist"},
	"require-token": {
		"string", "changes: on a loopback address, too, routes that change something require the token",
	},
	"allowed-hosts": {
		"list", "host names that requests may use, in addition to localhost and the address of the API",
	},
	"ignore": {
		"list of rules",
		"findings that reports leave out: `id` (of a CVE or an advisory), `package` (pattern of the name or of " +
			"type/name), `path` (pattern), at least one of them; `reason`; `expires` (last day, `2026-12-31`)",
	},
	"exclude-paths":  {"list", "directories that are neither scanned nor watched: absolute paths, also with patterns"},
	"webhook":        {"URL", "address to which changes are posted"},
	"push-url":       {"URL", "controller to which findings are sent; node: that of the node on this host"},
	"push-node":      {"string", "ID of the node that this host is; without it that of the node on this host"},
	"push-node-file": {"path", "file in which the node agent stores its identity"},
	"push-key-id": {
		"string", "API key with the permission `report_scan`; without it the credential of the node is used",
	},
	"push-key-file": {"path", "private key of that API key"},
	"push-ca-file":  {"path", "authorities to trust instead of the system's"},
	"push-interval": {"duration", "minimum time between two sends, at least 10s"},
}

// TestReferenceOfSettings: the page of the settings has every key of the configuration file, with
// the defaults of a service of root on Linux.
func TestReferenceOfSettings(t *testing.T) {
	env := func(string) string { return "" }
	defaults := defaultSettings(pathsFor("linux", true, "", env))
	defaults.PushNodeFile = nodeFile(true, "", env)

	var b strings.Builder
	b.WriteString(
		"Keys of the YAML file of `hostscan serve`: `/etc/buildyard/hostscan.yml`, or the one that `--config` names. " +
			"Paths are those of root on Linux. Keys with \"yes\" under *reload* apply when the service rereads the " +
			"file " +
			"on SIGHUP, " +
			"the others at its next start. An unknown key is refused.\n\n")
	b.WriteString("| key | type | default | reload | meaning |\n|---|---|---|---|---|\n")
	values := reflect.ValueOf(defaults)
	for i := range values.NumField() {
		field := values.Type().Field(i)
		key := field.Tag.Get("yaml")
		about, ok := keys[key]
		if !ok {
			t.Errorf("key %s is not described", key)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", key, about[0], show(values.Field(i)), field.Tag.Get("live"),
			about[1])
	}
	if len(keys) != values.NumField() {
		t.Errorf("%d keys are described, the file has %d", len(keys), values.NumField())
	}
	referencetest.Section(t, "settings.md", "Host scanner", b.String())
}

// show formats a default.
func show(v reflect.Value) string {
	text := strings.Trim(fmt.Sprint(v.Interface()), "[]")
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
