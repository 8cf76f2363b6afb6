package macos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	receiptDir = "var/db/receipts"
	billSuffix = ".bom"
	// maxBillBytes is how much of a bill of materials is searched. That of Xcode has some 60 MB.
	maxBillBytes = 256 << 20
	billChunk    = 64 << 10
)

// Receipts finds installer packages of macOS by the receipts that the installer leaves. A package that installed an
// application is left out: Applications finds that, with the version that it has now. So are the entries of
// InstallHistory.plist: they stay when a package is removed or replaced.
//
// It selects the bill of materials, whose suffix few other files have, and reads the property list next to it.
type Receipts struct{}

var _ catalog.Extractor = Receipts{}

// Name returns the name of the extractor in warnings.
func (Receipts) Name() string { return "macos/receipt" }

// Patterns selects bills of materials, which are searched in parts.
func (Receipts) Patterns() catalog.Patterns {
	return catalog.Patterns{Extensions: []string{billSuffix}, PartialRead: true}
}

// FileRequired accepts those of receipts, in a system or below the directory of one.
func (Receipts) FileRequired(p string) bool {
	dir, base := path.Split("/" + p)
	return strings.HasSuffix(dir, "/"+receiptDir+"/") && strings.HasSuffix(base, billSuffix)
}

// Extract reads a receipt.
func (Receipts) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	content, err := f.Open()
	if err != nil {
		return nil, err
	}
	if has, err := hasApplication(ctx, content); has || err != nil {
		return nil, err
	}
	data, err := f.ReadFile(strings.TrimSuffix(f.Path, billSuffix)+".plist", maxPlistBytes)
	if err != nil {
		return nil, err
	}
	var receipt struct {
		Identifier any `plist:"PackageIdentifier"`
		Version    any `plist:"PackageVersion"`
	}
	if err := decodePlist(data, &receipt); err != nil {
		return nil, err
	}
	name, version := firstText(receipt.Identifier), firstText(receipt.Version)
	if name == "" {
		return nil, errors.New("the receipt has no PackageIdentifier")
	}
	if version == "" {
		return nil, nil
	}
	return []catalog.Package{{Kind: catalog.MacOSPkg, Name: name, Version: version}}, nil
}

// bundleEnd ends the name of an application in a bill of materials: names there end with a zero byte.
var bundleEnd = []byte(".app\x00")

// hasApplication reports whether a bill of materials names an application.
func hasApplication(ctx context.Context, r io.Reader) (bool, error) {
	r = io.LimitReader(r, maxBillBytes)
	buf := make([]byte, billChunk)
	kept := 0 // bytes of the last chunk, in which a name may begin
	for {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buf[kept:])
		if bytes.Contains(buf[:kept+n], bundleEnd) {
			return true, nil
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(buf, buf[len(buf)-len(bundleEnd)+1:])
	}
}
