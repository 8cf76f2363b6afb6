package cloud

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// contextFile is the user's client.yaml.
type contextFile struct {
	Current  string                  `yaml:"current,omitempty"`
	Contexts map[string]contextEntry `yaml:"contexts"`
}

// contextEntry is the address and the credentials of one cloud.
type contextEntry struct {
	Controller    string `yaml:"controller"`
	RootToken     string `yaml:"root-token,omitempty"`
	RootTokenFile string `yaml:"root-token-file,omitempty"`
	KeyID         string `yaml:"api-key-id,omitempty"`
	KeyFile       string `yaml:"api-key-file,omitempty"`
	BearerFile    string `yaml:"bearer-file,omitempty"`
	CACert        string `yaml:"ca-cert,omitempty"`
	ClientCert    string `yaml:"client-cert,omitempty"`
	ClientKey     string `yaml:"client-key,omitempty"`
	SkipVerify    bool   `yaml:"skip-tls-verification,omitempty"`

	// The former names of api-key-id and api-key-file, accepted for one release; readContexts clears them.
	OldKeyID   string `yaml:"key-id,omitempty"`
	OldKeyFile string `yaml:"key-file,omitempty"`
}

func (e contextEntry) settings() map[string]string {
	return map[string]string{
		config.Controller: e.Controller, config.RootToken: e.RootToken, config.RootToken + "_FILE": e.RootTokenFile,
		config.ClientKeyID: e.KeyID, config.ClientKeyString: "", config.ClientKeyString + "_FILE": e.KeyFile,
		config.ClientBearer: "", config.ClientBearer + "_FILE": e.BearerFile,
		config.TrustedCA: e.CACert, config.ClientCert: e.ClientCert, config.ClientKey: e.ClientKey,
		config.SkipVerification: strconv.FormatBool(e.SkipVerify),
	}
}

// maxContextFileBytes bounds the file, in bytes.
const maxContextFileBytes = 1 << 20

func contextsPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("read client.yaml: %w", err)
	}
	return filepath.Join(dir, "buildyard", "client.yaml"), nil
}

// readContexts reads the file; a missing one has no contexts.
func readContexts() (c contextFile, err error) {
	path, err := contextsPath()
	if err != nil {
		return c, nil // a user without a home directory has no contexts
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	defer func() { _ = f.Close() }()
	dec := yaml.NewDecoder(io.LimitReader(f, maxContextFileBytes))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %w", path, readableYAMLError(err))
	}
	if err := c.renameOldKeys(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// find returns a context by its name.
func (c contextFile) find(name string) (contextEntry, error) {
	e, ok := c.Contexts[name]
	if ok {
		return e, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", ")
	if known == "" {
		known = "no contexts"
	}
	return e, fmt.Errorf("context %q not found in client.yaml (%s)", name, known)
}

// chooseContext adds the settings of the active context to the sources. The address and the
// credentials always come from one source: a context that is named on the command line replaces the
// environment, and an address given by hand or in a file disables the contexts.
func chooseContext(src config.Sources) (config.Sources, error) {
	given := func(name string) string {
		if f := src.Flags.Lookup(name); f != nil && f.Changed {
			return f.Value.String()
		}
		return ""
	}
	env := func(key string) string {
		text, _ := src.Env(key)
		return text
	}
	address, name := cmp.Or(given("controller"), given("registry")), given("context")
	inFile, err := src.FromFile(config.ClientTable, config.Controller)
	switch {
	case err != nil:
		return src, err
	case address != "" && name != "":
		return src, errors.New("--controller and --context are mutually exclusive (also --registry with a context)")
	case address != "", name == "" && (env(config.Controller) != "" || inFile != ""):
		return src, nil
	}
	c, err := readContexts()
	if err != nil {
		return src, err
	}
	byHand := name != ""
	inFile, _ = src.FromFile(config.ClientTable, config.Context) // the file was read above
	if name = cmp.Or(name, env(config.Context), inFile, c.Current); name == "" {
		return src, nil
	}
	e, err := c.find(name)
	if err != nil {
		return src, err
	}
	src.FileDefaults = e.settings()
	if byHand {
		src.Env = withoutSettings(src.Env, src.FileDefaults)
		err = checkNoContextSettings(src)
	}
	return src, err
}

// checkNoContextSettings checks that the settings file has no setting that a context defines.
func checkNoContextSettings(src config.Sources) error {
	for key := range src.FileDefaults {
		text, err := src.FromFile(config.ClientTable, key)
		switch {
		case err != nil:
			return err
		case text != "":
			return fmt.Errorf("--context and the setting %[2]s of %[1]s are mutually exclusive", src.File, key)
		}
	}
	return nil
}

// withoutSettings removes from the environment the settings that a context defines.
func withoutSettings(env func(string) (string, bool), values map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		if _, ok := values[key]; ok {
			return "", false
		}
		return env(key)
	}
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, _ := readContexts() // without contexts there is nothing to complete
	return slices.Sorted(maps.Keys(c.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func contextCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "context",
		Short: "Manage client contexts",
		Long: `context lists the contexts of the user's client.yaml and selects the current one. The file is in
the user's configuration directory, on Linux ~/.config/buildyard:

  current: lab
  contexts:
    lab:
      controller: http://build.example:8090
    plant:
      controller: https://plant.example
      root-token-file: /etc/buildyard/plant.token
      ca-cert: /etc/buildyard/plant.pem

A context may also have api-key-id with api-key-file, bearer-file, root-token, client-cert, client-key
and skip-tls-verification. Files with keys and tokens must be private. Flags and the environment
override a context. An address from them disables contexts, and --context disables the environment.`,
		Example: `  buildyard context list
  buildyard context use plant
  buildyard node list --context lab`,
	}, contextList(s), contextUse(s))
}

func contextList(s cli.Streams) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts", Args: cobra.NoArgs,
		Long:    "list shows the contexts of client.yaml; a star marks the current one. Secrets are not shown.",
		Example: `  buildyard context list`,
		RunE: func(*cobra.Command, []string) error {
			c, err := readContexts()
			if err != nil {
				return err
			}
			type shown struct {
				Name       string `json:"name"`
				Controller string `json:"controller"`
				Current    bool   `json:"current"`
			}
			list := []shown{}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				list = append(list, shown{name, c.Contexts[name].Controller, name == c.Current})
			}
			return output.Write(s.Out, list, func(g *cli.Grid) {
				g.Row("CURRENT", "NAME", "CONTROLLER")
				for _, e := range list {
					star := ""
					if e.Current {
						star = "*"
					}
					g.Row(star, e.Name, e.Controller)
				}
			})
		},
	}
	output.Add(cmd)
	return cmd
}

func contextUse(s cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Select the current context", Args: cobra.ExactArgs(1),
		Long:              "use selects the context that commands use by default.",
		Example:           `  buildyard context use plant`,
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := readContexts()
			if err != nil {
				return err
			}
			e, err := c.find(args[0])
			if err != nil {
				return cli.Exit(cli.ExitNotFound, err)
			}
			if err := setCurrent(args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.Out, "%s: %s\n", cli.EscapeName(args[0]), cli.EscapeName(e.Controller))
			return err
		},
	}
}

// setCurrent changes one key of the file and leaves comments, order and former names of keys as they are, so that an
// earlier release can still read it.
func setCurrent(name string) error {
	path, err := contextsPath()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	root := doc.Content[0] // a context was found in it
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
	found := false
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "current" {
			root.Content[i+1], found = value, true
		}
	}
	if !found {
		root.Content = append([]*yaml.Node{{Kind: yaml.ScalarNode, Value: "current"}, value}, root.Content...)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	return replaceFile(path, out.Bytes())
}

// replaceFile rewrites a file: the old one stays until the new one is complete.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".client-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
