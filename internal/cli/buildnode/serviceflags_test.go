package buildnode

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestPathFlags: every flag of run that names a file is marked as one, so that the service, which runs in another
// directory, gets its absolute path.
func TestPathFlags(t *testing.T) {
	cmd := &cobra.Command{Use: "run"}
	addRunFlags(cmd, &NodeOptions{})
	namesFile := regexp.MustCompile(`(?i)^(private |license )?file\b|-file$`)
	found := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !namesFile.MatchString(f.Usage) && !namesFile.MatchString(f.Name) {
			return
		}
		found++
		if _, marked := f.Annotations[cobra.BashCompFilenameExt]; !marked {
			t.Errorf("--%s is not marked as a file", f.Name)
		}
	})
	if found < 3 {
		t.Errorf("%d flags name files, want at least 3", found)
	}
}

// TestFlagValues: flags become arguments that have the same values in another directory.
func TestFlagValues(t *testing.T) {
	cmd := &cobra.Command{Use: "run"}
	addRunFlags(cmd, &NodeOptions{})
	file, err := filepath.Abs("serviceflags_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		value string
		want  []string
	}{
		"driver":            {"sim", []string{"--driver=sim"}},
		"bridge":            {"", []string{"--bridge="}},
		"require-isolation": {"true", []string{"--require-isolation=true"}},
		"vlan":              {"10=br0,20", []string{"--vlan=10=br0", "--vlan=20"}},
		"update-key":        {"serviceflags_test.go", []string{"--update-key=" + file}},
		"license-file":      {"", []string{"--license-file="}},
	} {
		if err := cmd.Flags().Set(name, c.value); err != nil {
			t.Fatal(err)
		}
		got, err := flagValues(cmd.Flags().Lookup(name))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("--%s %q becomes %q, %v, want %q", name, c.value, got, err, c.want)
		}
	}
	if err := cmd.Flags().Set("update-key", "nowhere"); err != nil {
		t.Fatal(err)
	}
	if got, err := flagValues(cmd.Flags().Lookup("update-key")); err == nil {
		t.Errorf("a missing file becomes %q", got)
	}
}
