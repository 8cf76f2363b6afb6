package imagescan

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/scan/disk/luks"
)

// maxKeyFileBytes limits a key file, as cryptsetup does.
const maxKeyFileBytes = 8 << 20

// loadKeys reads the key file once: it may be a pipe.
func (o *inventoryOptions) loadKeys() (err error) {
	if o.keyFile != "" && o.keys == nil {
		o.keys, err = readKeyFile(o.keyFile)
	}
	return err
}

// readKeyFile returns the keys that a file may mean.
func readKeyFile(name string) ([][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("key file: %w", err)
	case len(content) > maxKeyFileBytes:
		return nil, fmt.Errorf("key file %s has more than %s, the limit of a passphrase or key", name,
			bytesize.Format(maxKeyFileBytes))
	case len(content) == 0 || string(content) == "\n":
		return nil, errors.New("key file " + name + " is empty")
	}
	return luks.KeysInFile(content), nil
}
