package buildyard

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// initOptions are the options of the command init.
type initOptions struct {
	Streams
	tls       bool
	hostNames []string

	dataDir  string
	messages []string // messages about created and existing files
}

func initCommand(s Streams) *cobra.Command {
	o := initOptions{Streams: s}
	cmd := &cobra.Command{
		Use: "init", GroupID: serviceGroup,
		Short: "Set up authentication: create data directory and root token",
		Long: `init creates what a controller with authentication needs in its data directory, readable by the current
user only: the root token (root-token) and the settings that use it (buildyard.conf). "buildyard up"
and "buildyard controller" with the same data directory read these settings; flags, the environment
and --config override them.

With --tls it also creates a certificate authority and a server certificate for this machine, so that
the ports serve HTTPS. Clients and nodes need the file tls/ca.pem. To use a certificate of another
authority, set --server-cert and --server-key of the services instead.

It may run again: existing files stay unchanged, in particular the token.`,
		Example: `  buildyard init && buildyard up
  buildyard init --tls --name build.example --data-dir /srv/buildyard`,
		Args: cobra.NoArgs,
	}
	data := cmd.Flags().String("data-dir", "", "data directory of the controller (default: "+config.DataDir+
		", or that of \"up\")")
	cmd.Flags().BoolVar(&o.tls, "tls", false,
		"create a certificate authority and a server certificate, and enable HTTPS")
	cmd.Flags().StringSliceVar(&o.hostNames, "name", nil,
		"additional host names or addresses of the certificate (with --tls)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("name") {
			if err := o.checkHostNames(); err != nil {
				return cli.Usage(err)
			}
		}
		v, err := config.Load(config.ControllerTable, config.Sources{Env: os.LookupEnv, Flags: cmd.Flags()})
		if err != nil {
			return cli.Usage(err)
		}
		if o.dataDir, err = filepath.Abs(v.String(config.DataDir)); err != nil {
			return fmt.Errorf("%s: %w", config.DataDir, err)
		}
		if *data == "" && cmd.Flags().Changed("data-dir") {
			return cli.Usage(errors.New("--data-dir: directory name is empty"))
		}
		return o.run()
	}
	return cmd
}

// run creates missing files, and prints the files and the next steps.
func (o *initOptions) run() error {
	if err := openDataDir(o.dataDir); err != nil {
		return err
	}
	token := filepath.Join(o.dataDir, rootTokenFile)
	if err := o.makeToken(token); err != nil {
		return err
	}
	settings := [][2]string{{config.EnableAuth, "true"}, {config.AuthRootToken +
		"_FILE", token}, {config.EnableAPIKeys, "true"}}
	if o.tls {
		pair, err := createCertificates(filepath.Join(o.dataDir, tlsDir), o.hostNames)
		if err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
		o.printCreated(pair.created, "certificate", pair.certPath)
		if err := o.warnIgnoredNames(pair); err != nil {
			return err
		}
		settings = append(settings, [2]string{config.UseHTTPS, "true"}, [2]string{config.ServerCert, pair.certPath},
			[2]string{config.ServerKey, pair.keyPath})
	}
	values, err := o.addSettings(filepath.Join(o.dataDir, initSettingsFile), settings)
	if err != nil {
		return err
	}
	return o.printNextSteps(values)
}

// printCreated prints that something was created, or existed before.
func (o *initOptions) printCreated(made bool, what, path string) {
	word := "kept"
	if made {
		word = "created"
	}
	o.messages = append(o.messages, fmt.Sprintf("%-7s  %-12s %s", word, what, path))
}

// makeToken creates the root token's file, or checks an existing one.
func (o *initOptions) makeToken(path string) error {
	if _, err := config.ReadSecret(path, nil); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("read root token %s: %w", path, err)
		}
		o.printCreated(false, "root token", path)
		return nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	if err := replaceFile(path, []byte(base64.RawURLEncoding.EncodeToString(secret)+"\n")); err != nil {
		return fmt.Errorf("write root token: %w", err)
	}
	o.printCreated(true, "root token", path)
	return nil
}

// addSettings adds missing settings to the file, and returns all settings. Existing values stay.
func (o *initOptions) addSettings(path string, settings [][2]string) (map[string]string, error) {
	values, err := config.ReadFile(path, config.ControllerTable)
	made := errors.Is(err, fs.ErrNotExist)
	if err != nil && !made {
		return nil, err
	}
	text := "# Settings created by \"buildyard init\". Flags, the environment and --config override them.\n"
	if made {
		values = map[string]string{}
	} else if raw, err := os.ReadFile(path); err != nil {
		return nil, err
	} else if text = string(raw); !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	missing := false
	for _, s := range settings {
		if _, there := values[s[0]]; !there {
			values[s[0]], missing = s[1], true
			text += s[0] + "=" + config.Quote(s[1]) + "\n"
		}
	}
	o.printCreated(missing, "settings", path)
	if !missing {
		return values, nil
	}
	return values, replaceFile(path, []byte(text))
}

// writeNewFile writes a file that must not exist, readable by its owner alone, and syncs it with its
// directory. An incomplete file is removed.
func writeNewFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return syncDir(filepath.Dir(path))
}

// replaceFile writes a file and renames it into place.
func replaceFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeNewFile(part, content); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
