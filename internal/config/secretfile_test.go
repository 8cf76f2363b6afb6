package config

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// keyed is a table with secrets that a flag names the file of.
var keyed = Table{
	{Key: "SVC_TOKEN", Flag: "token", FileFlag: "token-file", Kind: Secret, Help: "a token"},
	{Key: "SVC_PEM", Flag: "pem", FileFlag: "pem-file", Kind: SecretText, Private: true, Help: "a key"},
}

func parsed(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	keyed.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestSecretsComeFromPrivateFiles: a flag names a file that only its owner may read, or the
// standard input; a file named by the environment must be private where the table requires it.
func TestSecretsComeFromPrivateFiles(t *testing.T) {
	const lines = "hidden\nof two lines"
	private, open := writeFile(t, lines+"\n"), writeFile(t, "hidden\n")
	if err := os.Chmod(open, 0o604); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args       []string
		env        map[string]string
		key, value string
		says       string
	}{
		"file":           {args: []string{"--pem-file", private}, key: "SVC_PEM", value: lines},
		"standard input": {args: []string{"--token-file", "-"}, key: "SVC_TOKEN", value: "typed"},
		"beats environment": {
			args: []string{"--token-file", "-"}, env: map[string]string{"SVC_TOKEN": "other"},
			key: "SVC_TOKEN", value: "typed",
		},
		"open, as before":  {env: map[string]string{"SVC_TOKEN_FILE": open}, key: "SVC_TOKEN", value: "hidden"},
		"lines in the env": {env: map[string]string{"SVC_PEM": lines}, key: "SVC_PEM", value: lines},
		"open": {args: []string{"--token-file", open}, says: "--token-file " + open +
			": file is accessible by other users (mode 0604): run chmod 600"},
		"open from env": {env: map[string]string{"SVC_PEM_FILE": open}, says: "accessible by other users"},
		"two ways": {
			args: []string{"--token-file", private, "--token", "hidden"},
			says: "--token and --token-file are mutually exclusive",
		},
		"no name":            {args: []string{"--token-file", ""}, says: "--token-file: file name is empty"},
		"lines in a token":   {args: []string{"--token-file", private}, says: "SVC_TOKEN=" + secretMask},
		"no file":            {args: []string{"--token-file", private + "x"}, says: "no such file"},
		"a NUL in the lines": {env: map[string]string{"SVC_PEM": "hidden\x00"}, says: "SVC_PEM=" + secretMask},
	} {
		v, err := Load(keyed,
			Sources{Env: environment(tc.env), Flags: parsed(t, tc.args...), Stdin: strings.NewReader("typed\n")})
		switch {
		case tc.says != "":
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out strings.Builder
		if err := v.Print(&out); err != nil || v.String(tc.key) != tc.value ||
			strings.Contains(out.String(), tc.value) {
			t.Errorf("%s: %q, printed as %s", name, v.String(tc.key), out.String())
		}
	}
	if _, err := Load(keyed, Sources{Flags: parsed(t, "--token-file", "-")}); err == nil ||
		!strings.Contains(err.Error(), "standard input is not available") {
		t.Errorf("nothing to read: %v", err)
	}
}
