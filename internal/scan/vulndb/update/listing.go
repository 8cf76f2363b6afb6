// Package update maintains the vulnerability database of a machine: it fetches a newer one that a
// listing names, imports one from a file, and writes both.
//
// It does not build databases, and sends requests only to the listing's server and to that of the
// file which the listing names.
//
// Invariant: the database in use is replaced only by one whose size, SHA-256 and every block were
// verified, and otherwise left unchanged.
package update

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Listing names the database that a server offers. It is a small JSON file that any file server can
// serve.
type Listing struct {
	Schema   int       `json:"schema"`
	Built    time.Time `json:"built"`
	Path     string    `json:"path"`     // of the file, relative to the listing; or a whole URL
	Checksum string    `json:"checksum"` // "sha256:" and 64 hex digits
	Size     int64     `json:"size"`
	// Signature is the Ed25519 signature of SignedText, in base64. Empty is unsigned.
	Signature string `json:"signature,omitempty"`
}

// Errors of Update and Import; match them with errors.Is.
var (
	ErrChecksumMismatch = errors.New("checksum mismatch")
	ErrInvalidSignature = errors.New("the signature is missing or invalid")
)

const (
	maxListingBytes = 1 << 20
	defaultMaxSize  = 400 << 20 // bytes of a database
	checksumPrefix  = "sha256:"
)

// SignedText returns the signed text. It has no path, so that a mirror may store the file at any
// path.
func (l Listing) SignedText() []byte {
	return fmt.Appendf(nil, "buildyard vulnerability database\nschema %d\nbuilt %s\nchecksum %s\nsize %d\n",
		l.Schema, l.Built.UTC().Format(time.RFC3339Nano), l.Checksum, l.Size)
}

// verify returns an error unless the key signed the listing; without a key it accepts everything.
func (l Listing) verify(key ed25519.PublicKey) error {
	if len(key) == 0 {
		return nil
	}
	if l.Signature == "" {
		return fmt.Errorf("%w: the listing has no signature, but a key is configured", ErrInvalidSignature)
	}
	sig, err := base64.StdEncoding.DecodeString(l.Signature)
	if err != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, l.SignedText(), sig) {
		return fmt.Errorf("%w: the listing is not signed with the configured key", ErrInvalidSignature)
	}
	return nil
}

// ParseListing parses a listing, and refuses one that this program cannot use.
func ParseListing(b []byte, most int64) (Listing, error) {
	var l Listing
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("parse listing: %w", err)
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(l.Checksum, checksumPrefix))
	switch {
	case l.Schema > vulndb.Schema:
		return l, fmt.Errorf("%w: the listing has schema %d, this program supports %d; update this program",
			vulndb.ErrNewerSchema,
			l.Schema, vulndb.Schema)
	case l.Schema < vulndb.MinSchema:
		return l, fmt.Errorf("the listing has schema %d, this program requires %d or later", l.Schema, vulndb.MinSchema)
	case err != nil || len(sum) != sha256.Size || !strings.HasPrefix(l.Checksum, checksumPrefix):
		return l, errors.New("the listing has no sha256 checksum")
	case l.Size <= 0 || l.Size > most:
		return l, fmt.Errorf("the listing names a file of %d bytes: the limit is %d", l.Size, most)
	case l.Path == "":
		return l, errors.New("the listing names no database file")
	}
	l.Checksum = strings.ToLower(l.Checksum)
	return l, nil
}

// ListingOptions configure WriteListing.
type ListingOptions struct {
	Database string             // the file that it names
	Target   string             // file of the listing
	Path     string             // of the database as the listing names it; "" is the name of its file
	Key      ed25519.PrivateKey // nil: it is not signed
}

// WriteListing verifies a database and writes its listing.
func WriteListing(ctx context.Context, o ListingOptions) (Listing, error) {
	l, err := describeDatabase(ctx, o.Database)
	if err != nil {
		return l, fmt.Errorf("list the vulnerability database: %w", err)
	}
	l.Path = o.Path
	if l.Path == "" {
		l.Path = filepath.Base(o.Database)
	}
	if len(o.Key) > 0 {
		if len(o.Key) != ed25519.PrivateKeySize {
			return l, fmt.Errorf("list the vulnerability database: the signing key has %d bytes, an Ed25519 key has %d",
				len(o.Key),
				ed25519.PrivateKeySize)
		}
		l.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(o.Key, l.SignedText()))
	}
	if err := writeJSON(o.Target, l); err != nil {
		return l, fmt.Errorf("list the vulnerability database: %w", err)
	}
	return l, nil
}

// describeDatabase verifies a database and returns its listing, without a path.
func describeDatabase(ctx context.Context, path string) (Listing, error) {
	info, err := verifyDatabase(ctx, path)
	if err != nil {
		return Listing{}, err
	}
	sum, n, err := fileChecksum(path)
	if err != nil {
		return Listing{}, err
	}
	return Listing{Schema: info.Schema, Built: info.Built, Checksum: sum, Size: n}, nil
}

// fileChecksum returns the checksum of a file in the form of listings, and its size in bytes.
func fileChecksum(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return formatChecksum(h.Sum(nil)), n, err
}

func formatChecksum(sum []byte) string { return checksumPrefix + hex.EncodeToString(sum) }

// verifyDatabase opens a database and reads all its blocks.
func verifyDatabase(ctx context.Context, path string) (vulndb.Info, error) {
	db, err := vulndb.Open(path)
	if err != nil {
		return vulndb.Info{}, err
	}
	err = db.Verify(ctx)
	if err := errors.Join(err, db.Close()); err != nil {
		return vulndb.Info{}, fmt.Errorf("%s: %w", path, err)
	}
	info := db.Info()
	if info.Advisories+info.Vulnerabilities+info.Applicabilities == 0 {
		return info, fmt.Errorf("%s: the vulnerability database is empty", path)
	}
	return info, nil
}
