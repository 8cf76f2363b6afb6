package buildnode

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
)

// keyOptions are the options of an API key. They never come from the environment.
type keyOptions struct {
	keyID, keyText, keyFile string
	fileOrText              string // the flag --api-key, which --api-key-file and --api-key-string replace
}

// add adds the options to a command.
func (k *keyOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&k.keyID, "api-key-id", "", "API key ID, instead of a token")
	fs.StringVar(&k.keyText, "api-key-string",
		"", "private key of that API key; visible to other users of this machine")
	fs.StringVar(&k.keyFile, "api-key-file", "", "private file with that private key; - reads standard input")
	fs.StringVar(&k.fileOrText, "api-key", "", "private file with that private key, or the private key")
	_ = fs.MarkHidden("api-key")
}

func (k *keyOptions) given() bool { return *k != keyOptions{} }

// privateKey returns the file that has the private key, or its text.
func (k *keyOptions) privateKey() (file, text string, err error) {
	file, text = k.keyFile, k.keyText
	if k.fileOrText == "-" || isFile(k.fileOrText) {
		file = cmp.Or(file, k.fileOrText)
	} else {
		text = cmp.Or(text, k.fileOrText)
	}
	if k.keyID == "" || (text == "") == (file == "") {
		err = cli.Usage(errors.New("an API key requires --api-key-id and either --api-key-file or --api-key-string"))
	}
	return file, text, err
}

// joinKey is an API key of a node, and how it is stored.
type joinKey struct {
	creds *client.APIKey
	file  string // its owner's file; "": the text is stored in the data directory
	text  string
}

// read returns the key that the options name; nil without such options.
func (k *keyOptions) read(in io.Reader) (*joinKey, error) {
	if !k.given() {
		return nil, nil // no key, which is not an error
	}
	file, text, err := k.privateKey()
	if err != nil {
		return nil, err
	}
	key := &joinKey{text: text}
	if file != "" {
		if key.text, err = config.ReadSecret(file, in); err != nil {
			return nil, cli.Usage(fmt.Errorf("read --api-key-file %s: %w", file, err))
		}
	}
	if file != "" && file != "-" {
		if key.file, err = absolutePath(file); err != nil {
			return nil, err
		}
	}
	if key.creds, err = client.ParseAPIKey(k.keyID, key.text); err != nil {
		if k.fileOrText != "" && file == "" {
			err = fmt.Errorf("%w; --api-key is not the name of a file either", err)
		}
		return nil, cli.Usage(err)
	}
	return key, nil
}

// readCredential reads the credential for joining: the join token, or an API key instead of it, or none
// for a node that has a certificate, or where anonymous nodes may join.
func readCredential(token tokenOptions, key keyOptions, in io.Reader) (text string, own *joinKey, err error) {
	switch {
	case token.given() && key.given():
		err = cli.Usage(errors.New("--token and --api-key-id are mutually exclusive"))
	case token.given():
		text, err = token.read(in)
	default:
		own, err = key.read(in)
	}
	return text, own, err
}

// keep stores the key in an identity: the name of its file, which is one in the data directory when
// the text was given without a file. An earlier key of the node is removed.
func (k *joinKey) keep(at datadir.Dir, id *datadir.Identity) error {
	id.APIKey = nil
	if k != nil {
		id.APIKey = &datadir.APIKey{KeyID: k.creds.ID(), KeyFile: k.file}
	}
	if k == nil || k.file != "" {
		if err := os.Remove(at.KeyFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the API key: %w", err)
		}
		return nil
	}
	id.APIKey.KeyFile = at.KeyFile()
	if err := at.Create(); err != nil {
		return err
	}
	return datadir.WriteFile(at.KeyFile(), []byte(k.text+"\n"))
}

// authorizer returns a function that authenticates requests to the node's controller with an API key.
func (k *joinKey) authorizer(id datadir.Identity) (func(*http.Request) error, error) {
	controller, err := client.NewController(id.ControllerURL, clientOptions(k.creds, id.TLS))
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) error { return explainHandshake("controller", controller.Authorize(r)) }, nil
}

// clientOptions returns the options of this program's clients.
func clientOptions(creds client.Credentials, tls datadir.TLSFiles) client.Options {
	return client.Options{
		Credentials: creds, UserAgent: "buildnode",
		TLS: client.TLS{CAFile: tls.CAFile, CertFile: tls.CertFile, KeyFile: tls.KeyFile, SkipVerify: tls.SkipVerify},
	}
}

// explainHandshake converts a failed handshake to an error of the domain.
func explainHandshake(service string, err error) error {
	switch client.CodeOf(err) {
	case client.ErrUnreachable, client.ErrUnavailable:
		return farm.Unavailable(err, "The %s cannot be reached", service) // a later attempt may succeed
	case client.ErrUnauthenticated:
		return farm.Errorf(farm.CodeUnauthenticated, "%s", err.Error())
	default:
		return err
	}
}

// nodeKey authenticates to registries with the API key of a node. Its file is read at the first use.
type nodeKey struct {
	key datadir.APIKey
	tls datadir.TLSFiles

	mu              sync.Mutex // guards the fields below
	credentials     *client.APIKey
	registryClients map[string]*client.Registry // address -> client
}

var _ registrytoken.Credentials = (*nodeKey)(nil)

// nodeKeyOf returns the key that a node joined with; nil for none.
func nodeKeyOf(id datadir.Identity) registrytoken.Credentials {
	if id.APIKey == nil {
		return nil
	}
	return &nodeKey{key: *id.APIKey, tls: id.TLS, registryClients: map[string]*client.Registry{}}
}

// Authorize implements registrytoken.Credentials.
func (k *nodeKey) Authorize(r *http.Request, address string) error {
	registry, err := k.registryClient(address)
	if err != nil {
		return err
	}
	return explainHandshake("registry", registry.Authorize(r))
}

// Renew implements registrytoken.Credentials.
func (k *nodeKey) Renew(r *http.Request, address string) bool {
	registry, err := k.registryClient(address)
	return err == nil && registry.Renew(r)
}

// maxRegistryClients limits the cached clients: a cloud has one or two registries.
const maxRegistryClients = 8

func (k *nodeKey) registryClient(address string) (*client.Registry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.registryClients[address]; r != nil {
		return r, nil
	}
	var err error
	if k.credentials == nil {
		if k.credentials, err = client.LoadAPIKey(k.key.KeyID, k.key.KeyFile); err != nil {
			return nil, farm.Errorf(farm.CodeUnauthenticated,
				"The API key of this node cannot be used: %v; join again with it", err)
		}
	}
	r, err := client.NewRegistry(address, clientOptions(k.credentials, k.tls))
	if err != nil {
		return nil, err
	}
	if len(k.registryClients) >= maxRegistryClients {
		clear(k.registryClients)
	}
	k.registryClients[address] = r
	return r, nil
}
