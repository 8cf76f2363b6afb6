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
	apiKey    keyOptions
	tokenFile string // file with the root token
}

func (l *loginOptions) add(fs *pflag.FlagSet) {
	l.apiKey.add(fs)
	fs.StringVar(&l.tokenFile, "token-file", "", "private file with the root token; - reads standard input")
	cli.MarkGlobal(fs, "api-key-id", "api-key-string", "api-key-file", "token-file")
}

// check rejects invalid combinations of options.
func (l *loginOptions) check() error {
	if l.apiKey.given() && l.tokenFile != "" {
		return cli.Usage(errors.New("--api-key-id and --token-file are mutually exclusive"))
	}
	return nil
}

// storeIn stores the credentials of a registry for later commands: file names, never their content.
func (l *loginOptions) storeIn(r *remote.Registry) error {
	if err := l.check(); err != nil {
		return err
	}
	var file string
	var err error
	if l.apiKey.given() {
		if file, _, err = l.apiKey.privateKey(); err != nil {
			return err
		}
		if !isFile(file) {
			return cli.Usage(errors.New("--api-key-file: only the name of an existing file can be stored; write the " +
				"private key to a private file"))
		}
	}
	if l.tokenFile == "-" {
		return cli.Usage(errors.New("--token-file: only a file name can be stored"))
	}
	r.KeyID = l.apiKey.keyID
	r.KeyFile, err = absolutePath(file)
	if err == nil {
		r.TokenFile, err = absolutePath(l.tokenFile)
	}
	return err
}

// absolutePath makes the name of a file independent of the working directory.
func absolutePath(file string) (string, error) {
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
		kept := loginOptions{apiKey: keyOptions{keyID: r.KeyID, keyFile: r.KeyFile}, tokenFile: r.TokenFile}
		return kept.credentials(o.In)
	}
	return o.Login.credentials(o.In)
}

// credentials returns the credentials of the options; nil for none.
func (l *loginOptions) credentials(in io.Reader) (creds client.Credentials, as string, err error) {
	if err := l.check(); err != nil {
		return nil, "", err
	}
	if l.tokenFile != "" {
		token, err := config.ReadSecret(l.tokenFile, in)
		if err != nil {
			return nil, "", cli.Usage(fmt.Errorf("read root token %s: %w", l.tokenFile, err))
		}
		return client.RootToken(token), "the root user", nil
	}
	key, err := l.apiKey.read(in)
	if err != nil || key == nil {
		return nil, "", err
	}
	return key.creds, key.creds.String(), nil
}

// setCredentials lets the client of a registry use credentials.
func setCredentials(o *transfer.Options, creds client.Credentials, tls datadir.TLSFiles) error {
	if creds == nil {
		return nil
	}
	registry, err := client.NewRegistry(o.BaseURL, clientOptions(creds, tls))
	if err != nil {
		return err
	}
	o.RenewCredentials = registry.Renew
	o.Authorize = func(r *http.Request) error { return explainHandshake("registry", registry.Authorize(r)) }
	return nil
}

// explainAuthError adds advice, or the credentials in use, to an authentication or authorization error.
func (o *registryOptions) explainAuthError(err error) error {
	switch code := farm.CodeOf(err); {
	case code == farm.CodeUnauthenticated && o.credentialsName == "" && o.TLS.CertFile == "":
		return fmt.Errorf(
			"%w: set an API key (--api-key-id and --api-key-file), the root token (--token-file) or a "+
				"certificate (--client-cert and --client-key)", err)
	case code == farm.CodeUnauthenticated && o.credentialsName == nodeKeyName:
		return fmt.Errorf(
			"%w: the registry rejects the API key of this node; set an API key (--api-key-id and --api-key-file) "+
				"or the "+
				"root token (--token-file)", err)
	case code == farm.CodeUnauthenticated && o.credentialsName == "the root user":
		return fmt.Errorf("%w: check that the root token is that of this registry", err)
	case code == farm.CodeForbidden && o.credentialsName != "":
		return fmt.Errorf("%w (authenticated as %s)", err, o.credentialsName)
	}
	return err
}

// withAuthErrorHints adds what to do to the authentication errors of a command.
func (o *registryOptions) withAuthErrorHints(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.explainAuthError(run(cmd, args)) }
	return cmd
}
