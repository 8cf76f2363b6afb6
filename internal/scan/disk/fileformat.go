package disk

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/ova"
	"github.com/buildyard/buildyard/internal/scan/disk/udif"
	"github.com/buildyard/buildyard/internal/scan/disk/vmdk"
)

// fileFormat is a format of images other than raw and qcow2.
type fileFormat struct {
	name    string
	matches func(p chainFile) bool
	open    func(o *imageOpener, name string, p chainFile) error
}

var fileFormats = []fileFormat{
	{formatVMDK, matchVMDK, (*imageOpener).openVMDK},
	{formatUDIF, func(p chainFile) bool { return udif.IsImage(p.file, p.size) }, (*imageOpener).openUDIF},
	{formatUDIF, matchEncryptedUDIF, (*imageOpener).refuseEncrypted},
	{formatOVA, func(p chainFile) bool { return ova.IsArchive(p.file, p.size) }, (*imageOpener).openOVA},
}

// addDisk makes the disk of the image its only one.
func (i *Image) addDisk(name string) {
	i.disks = []Disk{{Name: name, Format: i.format, ReaderAt: i.layer, Size: i.layer.Size()}}
}

func matchVMDK(p chainFile) bool { return isVMDK(p.file) }

func isVMDK(r io.ReaderAt) bool {
	var b [32]byte
	n, _ := r.ReadAt(b[:], 0)
	return vmdk.IsImage(b[:n])
}

// openVMDK opens an image, and its extents in the directory of the image or below.
func (o *imageOpener) openVMDK(name string, p chainFile) error {
	layer, err := vmdk.Open(p.layer(), func(extent string) (qcow2.Layer, error) {
		at, err := o.localPath("extent", name, extent)
		if err != nil {
			return nil, err
		}
		f, err := o.openFile(at)
		if err != nil {
			return nil, err
		}
		return f.layer(), nil
	})
	if err != nil {
		return fmt.Errorf("VMDK image: %w", err)
	}
	o.image.layer = layer
	o.image.addDisk(name)
	return nil
}

func (o *imageOpener) openUDIF(name string, p chainFile) error {
	layer, err := udif.Open(p.file, p.size)
	if err != nil {
		return fmt.Errorf("DMG image: %w", err)
	}
	o.image.layer = layer
	o.image.addDisk(name)
	return nil
}

// matchEncryptedUDIF reports whether a file is encrypted: version 2 has its mark at the beginning, version 1 at the
// end.
func matchEncryptedUDIF(p chainFile) bool {
	var first, last [8]byte
	n, _ := p.file.ReadAt(first[:], 0)
	m, _ := p.file.ReadAt(last[:], max(0, p.size-8))
	return n == 8 && string(first[:]) == "encrcdsa" || m == 8 && string(last[:]) == "cdsaencr"
}

func (o *imageOpener) refuseEncrypted(string, chainFile) error {
	return errors.New("the Apple disk image (DMG) is encrypted: decrypt it on a Mac with hdiutil convert -format UDZO")
}

// openOVA opens the disks of an appliance.
func (o *imageOpener) openOVA(_ string, p chainFile) error {
	archive, err := ova.Open(p.file, p.size)
	if err != nil {
		return fmt.Errorf("OVA appliance: %w", err)
	}
	disks, err := archive.Disks()
	if err != nil {
		return fmt.Errorf("OVA appliance: %w", err)
	}
	for _, d := range disks {
		layer, err := openOVADisk(archive, d)
		if err != nil {
			o.image.skipped = append(o.image.skipped, skippedWithError(d.Name, err))
			continue
		}
		if o.image.layer == nil {
			o.image.layer = layer
		}
		o.image.disks = append(o.image.disks,
			Disk{Name: d.Name, Format: formatVMDK, ReaderAt: layer, Size: layer.Size()})
	}
	switch {
	case len(o.image.disks) > 0:
		return nil
	case len(o.image.skipped) > 0:
		return fmt.Errorf("OVA appliance: disk %s: %w", o.image.skipped[0].Name, o.image.skipped[0].Err)
	}
	return errors.New("OVA appliance: it has no disks")
}

// openOVADisk opens a disk of an appliance in place.
func openOVADisk(archive *ova.Archive, d ova.Disk) (qcow2.Layer, error) {
	if d.File == nil {
		return nil, errors.New(d.Reason)
	}
	if !isVMDK(d.File) {
		return nil, errors.New("it is not a VMDK image: unpack the archive, and scan the disk")
	}
	return vmdk.Open(sectionLayer(d.File), func(extent string) (qcow2.Layer, error) {
		f, err := archive.File(path.Join(path.Dir(d.Name), extent))
		if err != nil {
			return nil, err
		}
		return sectionLayer(f), nil
	})
}

// section is a part of a file, without knowledge of holes.
type section struct{ *io.SectionReader }

// NextData returns the rest of the section.
func (s section) NextData(off int64) (start, end int64, err error) { return off, s.Size(), nil }

func sectionLayer(s *io.SectionReader) qcow2.Layer { return qcow2.RawLayer(section{s}, s.Size()) }
