package buildnode

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/remote"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// loginOptions are the credentials of the registry commands, in addition to a certificate.
type loginOptions struct {
	key   keyOptions
	token string // file with the root token
}

func (l *loginOptions) add(fs *pflag.FlagSet) {
	l.key.add(fs)
	fs.StringVar(&l.token, "token-file", "", "private file with the root token; - reads standard input")
	cli.MarkGlobal(fs, "api-key-id", "api-key-string", "api-key-file", "token-file")
}

// check rejects invalid combinations of options.
func (l *loginOptions) check() error {
	if l.key.given() && l.token != "" {
		return cli.Usage(errors.New("--api-key-id and --token-file are mutually exclusive"))
	}
	return nil
}

// keep stores the credentials of a registry for later commands: file names, never their content.
func (l *loginOptions) keep(r *remote.Registry) error {
	if err := l.check(); err != nil {
		return err
	}
	var file string
	var err error
	if l.key.given() {
		if file, _, err = l.key.privateKey(); err != nil {
			return err
		}
		if !isFile(file) {
			return cli.Usage(errors.New("--api-key-file: only the name of an existing file can be stored; write the " +
				"private key to a private file"))
		}
	}
	if l.token == "-" {
		return cli.Usage(errors.New("--token-file: only a file name can be stored"))
	}
	r.KeyID = l.key.id
	r.KeyFile, err = absolute(file)
	if err == nil {
		r.TokenFile, err = absolute(l.token)
	}
	return err
}

// absolute makes the name of a file independent of the working directory.
func absolute(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return filepath.Abs(file)
}

// isFile reports whether a file with that name exists: a key is longer than any name.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// credentials returns the command's credentials for a registry and a description of them: those of
// the command line, otherwise those that the registry was added with; nil for none.
func (o *registryOptions) credentials(r remote.Registry) (creds client.Credentials, as string, err error) {
	if o.Login == (loginOptions{}) {
		kept := loginOptions{key: keyOptions{id: r.KeyID, file: r.KeyFile}, token: r.TokenFile}
		return kept.credentials(o.In)
	}
	return o.Login.credentials(o.In)
}

// credentials returns the credentials of the options; nil for none.
func (l *loginOptions) credentials(in io.Reader) (creds client.Credentials, as string, err error) {
	if err := l.check(); err != nil {
		return nil, "", err
	}
	if l.token != "" {
		token, err := config.ReadSecret(l.token, in)
		if err != nil {
			return nil, "", cli.Usage(fmt.Errorf("read root token %s: %w", l.token, err))
		}
		return client.RootToken(token), "the root user", nil
	}
	key, err := l.key.read(in)
	if err != nil || key == nil {
		return nil, "", err
	}
	return key.creds, key.creds.String(), nil
}

// authorize lets the client of a registry use credentials.
func authorize(o *transfer.Options, creds client.Credentials, tls datadir.TLS) error {
	if creds == nil {
		return nil
	}
	registry, err := client.NewRegistry(o.BaseURL, clientOptions(creds, tls))
	if err != nil {
		return err
	}
	o.Renew = registry.Renew
	o.Authorize = func(r *http.Request) error { return handshake("registry", registry.Authorize(r)) }
	return nil
}

// refused adds advice, or the credentials in use, to an authentication or authorization error.
func (o *registryOptions) refused(err error) error {
	switch code := farm.CodeOf(err); {
	case code == farm.CodeUnauthenticated && o.as == "" && o.TLS.Cert == "":
		return fmt.Errorf(
			"%w: set an API key (--api-key-id and --api-key-file), the root token (--token-file) or a "+
				"certificate (--client-cert and --client-key)", err)
	case code == farm.CodeUnauthenticated && o.as == nodesKey:
		return fmt.Errorf(
			"%w: the registry rejects the API key of this node; set an API key (--api-key-id and --api-key-file) "+
				"or the "+
				"root token (--token-file)", err)
	case code == farm.CodeUnauthenticated && o.as == "the root user":
		return fmt.Errorf("%w: check that the root token is that of this registry", err)
	case code == farm.CodeForbidden && o.as != "":
		return fmt.Errorf("%w (authenticated as %s)", err, o.as)
	}
	return err
}

// withErrorHelp wraps the errors of a command with refused.
func (o *registryOptions) withErrorHelp(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.refused(run(cmd, args)) }
	return cmd
}
