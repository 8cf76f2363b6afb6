package buildnode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// maxToken limits the size of a token file, in bytes.
const maxToken = 4096

// tokenOptions are the sources of a join token. A file keeps it out of the process list, which
// every user of a machine may read.
type tokenOptions struct {
	token, tokenFile string
}

// add adds the options to a command.
func (t *tokenOptions) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&t.token, "token", "", "join token of the cloud; visible to other users of this machine")
	fs.StringVar(&t.tokenFile, "token-file", "", "file with the join token; - reads standard input")
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
}

func (t *tokenOptions) given() bool { return *t != tokenOptions{} }

// read returns the token itself or the content of the file, and an error when that is empty.
func (t *tokenOptions) read(in io.Reader) (string, error) {
	token := t.token
	if t.tokenFile != "" {
		var err error
		if token, err = readToken(t.tokenFile, in); err != nil {
			return "", err
		}
	}
	if token == "" {
		return "",
			cli.Usage(
				errors.New(`the join token is empty; "buildyard node token" prints it on the controller's machine`))
	}
	return token, nil
}

func readToken(file string, in io.Reader) (string, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", cli.Usage(fmt.Errorf("read --token-file: %w", err))
		}
		defer f.Close()
		in = f
	} else if in == nil {
		return "", cli.Usage(errors.New("--token-file -: no standard input"))
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxToken))
	if err != nil {
		return "", fmt.Errorf("read join token: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
