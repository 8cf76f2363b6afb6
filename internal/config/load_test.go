package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// sample has a setting of every kind.
var sample = Table{
	{Key: "SVC_NAME", Flag: "name", Default: "anna", Kind: String, Check: oneOf("anna", "berta",
		"it's #1"), Help: "a name"},
	{Key: "SVC_COUNT", Flag: "count", Default: "3", Kind: Int, Check: intAtLeast(1), Help: "a number"},
	{Key: "SVC_ON", Flag: "on", Default: "false", Kind: Bool, Help: "a switch"},
	{Key: "SVC_WAIT", Flag: "wait", Default: "1m", Kind: Duration, Check: durationBetween(time.Second,
		time.Hour), Help: "a time"},
	{Key: "SVC_ROOM", Flag: "room", Default: "10KB", Kind: Size, Help: "a size"},
	{Key: "SVC_AT", Flag: "at", Default: ":80", Kind: Addr, Help: "an address"},
	{Key: "SVC_DIR", Flag: "dir", Default: "/tmp/x", Kind: Path, Help: "a path"},
	{Key: "SVC_WORD", Flag: "word", Kind: Secret, Help: "a secret"},
	{Key: "SVC_ALL", Flag: "all", Kind: List, Help: "a list"},
}

// environment is an Env source made of a map.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		v, ok := vars[key]
		return v, ok
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func parsedFlags(t *testing.T, table Table, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	table.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

func mustLoad(t *testing.T, table Table, src Sources) *Values {
	t.Helper()
	v, err := Load(table, src)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDefaultsOfEveryKind(t *testing.T) {
	v := mustLoad(t, sample, Sources{})
	got := []any{
		v.String("SVC_NAME"), v.Int("SVC_COUNT"), v.Bool("SVC_ON"), v.Duration("SVC_WAIT"), v.Size("SVC_ROOM"),
		v.String("SVC_AT"), v.String("SVC_DIR"), v.String("SVC_WORD"), len(v.List("SVC_ALL")),
	}
	want := []any{"anna", 3, false, time.Minute, int64(10240), ":80", "/tmp/x", "", 0}
	if !slices.Equal(got, want) {
		t.Errorf("defaults are %v, want %v", got, want)
	}
}

// TestPrecedence sets one setting in every subset of the sources: the strongest one that has a
// value wins.
func TestPrecedence(t *testing.T) {
	order := []struct {
		origin Origin
		number int
	}{{FromFlag, 10}, {FromEnv, 20}, {FromFile, 30}}
	for subset := range 8 {
		src, want, number := Sources{}, FromDefault, 3
		for i, given := range slices.Backward(order) {
			if subset&(1<<i) == 0 {
				continue
			}
			want, number = given.origin, given.number
			switch want {
			case FromFlag:
				src.Flags = parsedFlags(t, sample, "--count=10")
			case FromEnv:
				src.Env = environment(map[string]string{"SVC_COUNT": "20"})
			case FromFile:
				src.File = writeFile(t, "SVC_COUNT=30\n")
			}
		}
		v := mustLoad(t, sample, src)
		if v.Int("SVC_COUNT") != number || v.Origin("SVC_COUNT") != want {
			t.Errorf("subset %03b: %d from %s, want %d from %s", subset, v.Int("SVC_COUNT"), v.Origin("SVC_COUNT"),
				number, want)
		}
	}
}

func TestEmptyMeansNotGiven(t *testing.T) {
	v := mustLoad(t, sample, Sources{
		Env:  environment(map[string]string{"SVC_COUNT": "", "SVC_NAME": ""}),
		File: writeFile(t, "SVC_COUNT=7\nSVC_NAME=\n"),
	})
	if v.Int("SVC_COUNT") != 7 || v.Origin("SVC_NAME") != FromDefault {
		t.Errorf("count %d, name from %s", v.Int("SVC_COUNT"), v.Origin("SVC_NAME"))
	}
}

func TestUnsetFlagDoesNotHideTheEnvironment(t *testing.T) {
	v := mustLoad(t, sample, Sources{
		Flags: parsedFlags(t, sample, "--name", "berta"),
		Env:   environment(map[string]string{"SVC_COUNT": "9", "SVC_NAME": "anna"}),
	})
	if v.Int("SVC_COUNT") != 9 || v.String("SVC_NAME") != "berta" {
		t.Errorf("count %d, name %s", v.Int("SVC_COUNT"), v.String("SVC_NAME"))
	}
}

func TestBoolFlagNeedsNoValue(t *testing.T) {
	for args, want := range map[string]bool{"--on": true, "--on=false": false, "--on=1": true} {
		v := mustLoad(t, sample, Sources{Flags: parsedFlags(t, sample, args)})
		if v.Bool("SVC_ON") != want {
			t.Errorf("%s gives %v", args, v.Bool("SVC_ON"))
		}
	}
}

func TestList(t *testing.T) {
	v := mustLoad(t, sample, Sources{Env: environment(map[string]string{"SVC_ALL": " a, b,,c ,"})})
	if got := v.List("SVC_ALL"); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("list is %q", got)
	}
}

// TestWrongValues wants one line that names the key, the value and the allowed form.
func TestWrongValues(t *testing.T) {
	cases := []struct{ key, value, form string }{
		{"SVC_NAME", "carl", "one of anna, berta"},
		{"SVC_NAME", "an\nna", "a text"},
		{"SVC_COUNT", "three", "a whole number"},
		{"SVC_COUNT", "0", "at least 1"},
		{"SVC_COUNT", "99999999999999999999", "a whole number"},
		{"SVC_ON", "maybe", "true or false"},
		{"SVC_WAIT", "soon", "a duration such as"},
		{"SVC_WAIT", "-5s", "a duration such as"},
		{"SVC_WAIT", "2h", "between 1s and 1h0m0s"},
		{"SVC_ROOM", "10", "a size such as"},
		{"SVC_ROOM", " 10 ", "a size such as"},
		{"SVC_ROOM", "10GB ", "a size such as"},
		{"SVC_ROOM", "1048577TB", ": size limit (1 EiB, which is 1048576TB) reached"},
		{"SVC_ROOM", "99999999999999999999B", ": size limit (1 EiB, which is 1048576TB) reached"},
		{"SVC_AT", "80", "an address host:port"},
		{"SVC_AT", ":80000", "an address host:port"},
		{"SVC_AT", ":http", "an address host:port"},
		{"SVC_DIR", "/a\x00b", "a path"},
		{"SVC_WORD", "two\nlines", "a text"},
	}
	for _, c := range cases {
		_, err := Load(sample, Sources{Env: environment(map[string]string{c.key: c.value})})
		if err == nil {
			t.Errorf("%s=%q is taken", c.key, c.value)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, c.key) || !strings.Contains(text, c.form) || strings.Contains(text, "\n") {
			t.Errorf("%s=%q: %s", c.key, c.value, text)
		}
		if c.key == "SVC_WORD" && strings.Contains(text, "lines") {
			t.Errorf("the secret is in the error: %s", text)
		}
	}
}

func TestErrorReportsWhereTheValueCameFrom(t *testing.T) {
	cases := map[string]Sources{
		"--count":       {Flags: parsedFlags(t, sample, "--count=x")},
		"environment":   {Env: environment(map[string]string{"SVC_COUNT": "x"})},
		"configuration": {File: writeFile(t, "SVC_COUNT=x")},
	}
	for want, src := range cases {
		if _, err := Load(sample, src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestSecretFromFile(t *testing.T) {
	for content, want := range map[string]string{
		"s3cret\n": "s3cret", "s3cret": "s3cret", "s3cret\r\n": "s3cret", " s3 cret ": " s3 cret ",
	} {
		path := writeFile(t, content)
		for name, src := range map[string]Sources{
			"env":  {Env: environment(map[string]string{"SVC_WORD_FILE": path})},
			"file": {File: writeFile(t, "SVC_WORD_FILE="+path)},
		} {
			v := mustLoad(t, sample, src)
			if got := v.String("SVC_WORD"); got != want || string(v.Origin("SVC_WORD")) != name {
				t.Errorf("%s %q gives %q from %s", name, content, got, v.Origin("SVC_WORD"))
			}
		}
	}
}

func TestSecretFileRefused(t *testing.T) {
	big := writeFile(t, strings.Repeat("x", maxSecretBytes+1))
	cases := map[string]map[string]string{
		"no such file":           {"SVC_WORD_FILE": filepath.Join(t.TempDir(), "none")},
		"is empty":               {"SVC_WORD_FILE": writeFile(t, "\n")},
		"larger than":            {"SVC_WORD_FILE": big},
		"mutually exclusive":     {"SVC_WORD_FILE": big, "SVC_WORD": "hidden-word"},
		"SVC_WORD=" + secretMask: {"SVC_WORD_FILE": writeFile(t, "hidden-word\n\n")},
	}
	for want, env := range cases {
		_, err := Load(sample, Sources{Env: environment(env)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		} else if strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
}

// TestFileSuffixIsForSecretsOnly: SVC_NAME_FILE is not a setting.
func TestFileSuffixIsForSecretsOnly(t *testing.T) {
	_, err := Load(sample, Sources{File: writeFile(t, "# a comment\n\nSVC_NAME_FILE=/x\n")})
	if err == nil || !strings.Contains(err.Error(), "line 3: unknown setting SVC_NAME_FILE") {
		t.Errorf("error is %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(sample, Sources{File: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error is %v", err)
	}
}

func TestGettersPanicOnProgrammingErrors(t *testing.T) {
	v := mustLoad(t, sample, Sources{})
	for name, call := range map[string]func(){
		"undeclared": func() { v.String("SVC_NONE") },
		"wrong kind": func() { v.Int("SVC_NAME") },
		"secret int": func() { v.Int("SVC_WORD") },
		"origin":     func() { v.Origin("SVC_NONE") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			call()
		}()
	}
}

func TestMetricsSettings(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{MetricsPort, "65536", "a port between 0 and 65535"},
		{MetricsPort, "-1", "a port between 0 and 65535"},
		{MetricsPort, "http", "a whole number"},
		{MetricsPath, "metrics", "a path such as /metrics"},
		{MetricsPath, "/", "a path such as /metrics"},
		{MetricsPath, "/a/../b", "a path such as /metrics"},
		{MetricsPath, "/{x}", "a path such as /metrics"},
		{MetricsPath, "/a b", "a path such as /metrics"},
	} {
		_, err := Load(RegistryTable, Sources{Env: environment(map[string]string{c.key: c.value})})
		if err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
	v := mustLoad(t, RegistryTable,
		Sources{Env: environment(map[string]string{MetricsPort: "0", MetricsPath: "/a/metrics.txt"})})
	if v.Int(MetricsPort) != 0 || v.String(MetricsPath) != "/a/metrics.txt" {
		t.Error("good values are not taken")
	}
}

// TestErrorOfACheckIsOneSentence: the error of a check that describes what is wrong is not combined
// with what the value must be.
func TestErrorOfACheckIsOneSentence(t *testing.T) {
	_, err := Load(ControllerTable, Sources{Env: environment(map[string]string{MACRange: "zz"})})
	want := `SVC_MAC_ADDR_RANGE="zz": invalid MAC address range "zz": want <FROM>-<TO>, such as 52:54:00:00:00:01-52:54:00:00:0F:FF`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestPasswordsOfAddressesAreNotShown: what is refused because of a password is named without it.
func TestPasswordsOfAddressesAreNotShown(t *testing.T) {
	for key, text := range map[string]string{
		Registry: "http://u:p@ss,/@h:8089/x", EtcdEndpoints: "http://a:2379,http://u:p@ss@h:2379",
		OIDCProviderURL: "https://u:p@ss@h",
	} {
		env := func(name string) (string, bool) {
			if name == key {
				return text, true
			}
			return "", false
		}
		_, err := Load(ControllerTable, Sources{Env: env})
		if err == nil || strings.Contains(err.Error(), "p@ss") || strings.Contains(err.Error(), "u:") ||
			!strings.Contains(err.Error(), "//h") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
