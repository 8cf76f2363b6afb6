package blob

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// vectors are the layers that docs/reference/layer-format.md shows, each on the ones before it.
func vectors(t *testing.T) (base, delta, stands *Layer) {
	base = whole(t, append(make([]byte, BlockSize), "yard\n"...), EncodeOptions{})
	disk := append(make([]byte, 4*BlockSize), "next\n"...)
	delta = changed(t, patches{bytes.NewReader(disk), []Change{
		{Off: BlockSize, Len: BlockSize, Kind: ChangeZero},
		{Off: 2 * BlockSize, Len: 2 * BlockSize, Kind: ChangeDiscard},
		{Off: 4 * BlockSize, Len: 5},
	}}, len(disk), base.Index().ChainID())
	return base, delta, consolidated(t, []*Layer{base, delta})
}

// TestVector compares the layers with the bytes in the document: each block of hex digits is a layer file,
// without comments, and each digest after one is its name.
func TestVector(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/layer-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "## Test vectors")
	shown := regexp.MustCompile("(?s)```\n(.*?)```\n\nDigest: `([0-9a-f]{64})`").FindAllStringSubmatch(text, -1)
	base, delta, stands := vectors(t)
	layers := []*Layer{base, delta, stands}
	if len(shown) != len(layers) {
		t.Fatalf("the document shows %d layers instead of %d", len(shown), len(layers))
	}
	for i, l := range layers {
		file, err := io.ReadAll(io.NewSectionReader(l.src, 0, l.index.FileSize()))
		if err != nil {
			t.Fatal(err)
		}
		if got := hexDigits(shown[i][1]); got != hex.EncodeToString(file) || shown[i][2] != l.index.Digest().String() {
			t.Errorf("layer %d: the document shows\n%s\nit has digest %s and is\n%x", i, got, l.index.Digest(), file)
		}
		if err := l.Verify(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if stands.index.ChainID() != delta.index.Digest() || delta.index.Parent() != base.index.Digest() {
		t.Fatal("the layers do not form a chain")
	}
}

// hexDigits returns the hex digits of a listing: on each line, the text before the first two spaces or a word.
func hexDigits(listing string) string {
	var b strings.Builder
	for line := range strings.Lines(listing) {
		line, _, _ = strings.Cut(line, "  ")
		b.WriteString(strings.Join(strings.Fields(line), ""))
	}
	return b.String()
}
