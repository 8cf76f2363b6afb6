package qemu

// SetStep has f called before each durable step of a start or a removal.
func (d *Driver) SetStep(f func(name string)) { d.step = f }

// Boots tries the boot sector under an accelerator.
var Boots = (*Driver).boots
