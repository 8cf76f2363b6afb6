package qemu

import "time"

// SetStep has f called before each durable step of a start or a removal.
func (d *Driver) SetStep(f func(name string)) { d.step = f }

// Boots tries the boot sector under an accelerator.
var Boots = (*Driver).boots

// GuardEvery sets how often the firewall's rules are put back.
func (o *Options) GuardEvery(t time.Duration) { o.guardEvery = t }

// Firewall has the rules loaded by a program that is not nft.
func (o *Options) Firewall(program string) { o.nft = program }

// WeakCgroups makes groups also where they cannot have limits.
func (o *Options) WeakCgroups() { o.weakCgroups = true }
