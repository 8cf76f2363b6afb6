package authfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// documentFormat is the newest form of a document that is understood.
const documentFormat = 1

// document is a file that holds one value.
type document struct {
	FormatVersion int             `json:"form"`
	SHA256        string          `json:"sha256"` // of the bytes of Data
	Data          json.RawMessage `json:"data"`
}

// The documents, and the most that each may have, in bytes.
const (
	keysFile    = "keys.json"
	ringFile    = "signing.json"
	grantsFile  = "grants.json"
	maxDocument = 64 << 20
)

// saveDocument replaces a document.
func (f *Dir) saveDocument(name string, data []byte) error {
	sum := sha256.Sum256(data)
	raw, err := json.Marshal(document{FormatVersion: documentFormat, SHA256: hex.EncodeToString(sum[:]), Data: data})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.replaceFile(name, append(raw, '\n'))
}

// loadDocument returns the content of a document; nil when there is none. Its errors contain nothing of
// that.
func (f *Dir) loadDocument(name string) ([]byte, error) {
	raw, err := f.readFile(name, maxDocument)
	if raw == nil || err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil || d.FormatVersion < 1 {
		return nil, damagedError(name, errors.New("file is incomplete"))
	}
	if d.FormatVersion > documentFormat {
		return nil, fmt.Errorf("%s has format %d, this program supports up to %d; update this program", name,
			d.FormatVersion,
			documentFormat)
	}
	if sum := sha256.Sum256(d.Data); hex.EncodeToString(sum[:]) != d.SHA256 {
		return nil, damagedError(name, errors.New("checksum mismatch"))
	}
	return d.Data, nil
}

func damagedError(name string, why error) error {
	return fmt.Errorf("%s is damaged (%w); restore it from a backup, or move it away to start without its content",
		name, why)
}

// Keys opens the API keys. Damage is an error: no key may be lost or change unnoticed.
func (f *Dir) Keys() (*auth.KeyTable, error) {
	raw, err := f.loadDocument(keysFile)
	if err != nil {
		return nil, err
	}
	var keys []farm.APIKey
	if raw != nil {
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, damagedError(keysFile, errors.New("file has no API keys"))
		}
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if k.ID == "" || k.Generation == "" || seen[k.ID] {
			return nil, damagedError(keysFile, fmt.Errorf("the API key %q is incomplete or occurs twice", k.ID))
		}
		seen[k.ID] = true
	}
	return auth.NewKeyTable(keys, func(all []farm.APIKey) error {
		raw, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("write %s: %w", keysFile, err)
		}
		return f.saveDocument(keysFile, raw)
	}), nil
}

// Ring opens the signing keys, and makes them when there are none.
func (f *Dir) Ring() (auth.KeyRing, error) {
	raw, err := f.loadDocument(ringFile)
	if err != nil {
		return auth.KeyRing{}, err
	}
	if raw == nil {
		r := auth.NewKeyRing(time.Now())
		return r, f.SaveRing(r)
	}
	r, err := auth.ParseKeyRing(raw)
	if err != nil {
		return auth.KeyRing{}, damagedError(ringFile, err)
	}
	return r, nil
}

// SaveRing replaces the signing keys.
func (f *Dir) SaveRing(r auth.KeyRing) error {
	raw, err := r.Encode()
	if err != nil {
		return err
	}
	return f.saveDocument(ringFile, raw)
}

// Grants opens the grants of a service.
func (f *Dir) Grants(s farm.Service) (*auth.GrantTable, error) {
	raw, err := f.loadDocument(grantsFile)
	if err != nil {
		return nil, err
	}
	var g auth.Grants
	if raw != nil {
		if err := json.Unmarshal(raw, &g); err != nil {
			return nil, damagedError(grantsFile, errors.New("file has no permissions"))
		}
	}
	if err := g.Check(s); err != nil {
		return nil, damagedError(grantsFile, err)
	}
	return auth.NewGrantTable(g, func(g auth.Grants) error {
		raw, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("write %s: %w", grantsFile, err)
		}
		return f.saveDocument(grantsFile, raw)
	}), nil
}
