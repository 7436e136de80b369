// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// A GPU without hardware. It adds a PCI root bus with one function, which has the identity of a
// Tesla T4. NVIDIA's kernel module binds to it and fails at the first use, as with a broken GPU.
//
// The configuration space is an array. The BARs are RAM that the kernel does not use, so boot with
// memmap=96M$0x90000000. For x86-64, Linux 6.1 and newer.
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

enum {
  MEMORY = 0x90000000,
  PM = 0x60,  // offsets of the two capabilities
  EXPRESS = 0x78,
  PMC_BOOT_0 = 0,  // registers of BAR 0 that name the chip: TU104, revision A1
  PMC_BOOT_42 = 0xa00,
};

static u8 config[4096];
static const u32 bar_size[] = {SZ_16M, SZ_32M, 0, SZ_32M, 0, 0};
static struct pci_sysdata sysdata = {.domain = 0x10, .node = NUMA_NO_NODE};
static struct resource buses = {.name = "fakegpu bus", .flags = IORESOURCE_BUS};
// The window is smaller than the reserved range, so that it is inside of it.
static struct resource window = {
    .name = "fakegpu",
    .flags = IORESOURCE_MEM,
    .start = MEMORY,
    .end = MEMORY + SZ_64M + SZ_16M - 1,
};

static bool in_config(unsigned int devfn, int where, int size) {
  return devfn == 0 && where + size <= sizeof(config);
}

static int read_config(struct pci_bus* bus, unsigned int devfn, int where, int size, u32* value) {
  *value = 0;
  if (in_config(devfn, where, size))
    memcpy(value, config + where, size);
  else
    *value = ~0u;  // there is no such function
  return PCIBIOS_SUCCESSFUL;
}

// Only these registers can be written. Power management stays at D0.
static int write_config(struct pci_bus* bus, unsigned int devfn, int where, int size, u32 value) {
  if (!in_config(devfn, where, size)) return PCIBIOS_DEVICE_NOT_FOUND;
  if (where >= PCI_BASE_ADDRESS_0 && where <= PCI_BASE_ADDRESS_5 && size == 4) {
    u32 bytes = bar_size[(where - PCI_BASE_ADDRESS_0) / 4];

    value = bytes ? value & ~(bytes - 1) : 0;  // the kernel measures a BAR by this
  } else if (where == PCI_COMMAND && size == 2) {
    value &= PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE;
  } else if (where != PCI_INTERRUPT_LINE && where < EXPRESS) {
    return PCIBIOS_SUCCESSFUL;
  }
  memcpy(config + where, &value, size);
  return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops ops = {.read = read_config, .write = write_config};

static void put16(int where, u16 value) { memcpy(config + where, &value, sizeof(value)); }

static void put32(int where, u32 value) { memcpy(config + where, &value, sizeof(value)); }

static void fill_config(void) {
  put32(PCI_VENDOR_ID, 0x1eb810de);
  put32(PCI_CLASS_REVISION, PCI_CLASS_DISPLAY_3D << 16 | 0xa1);
  put32(PCI_SUBSYSTEM_VENDOR_ID, 0x12a210de);
  put16(PCI_STATUS, PCI_STATUS_CAP_LIST);
  put32(PCI_BASE_ADDRESS_0, MEMORY + SZ_64M);
  put32(PCI_BASE_ADDRESS_1, MEMORY);
  put32(PCI_BASE_ADDRESS_3, MEMORY + SZ_32M);
  config[PCI_INTERRUPT_LINE] = 11;
  config[PCI_INTERRUPT_PIN] = 1;
  config[PCI_CAPABILITY_LIST] = PM;
  put16(PM, EXPRESS << 8 | PCI_CAP_ID_PM);
  put16(PM + PCI_PM_PMC, 3);
  put16(EXPRESS, PCI_CAP_ID_EXP);  // the last one
  put16(EXPRESS + PCI_EXP_FLAGS, PCI_EXP_TYPE_ENDPOINT << 4 | 2);
}

static int write_registers(void) {
  void __iomem* registers = ioremap(MEMORY + SZ_64M, SZ_1M);

  if (!registers) return -ENOMEM;
  memset_io(registers, 0, SZ_1M);
  writel(0x164000a1, registers + PMC_BOOT_0);
  writel(0x16400000, registers + PMC_BOOT_42);
  iounmap(registers);
  return 0;
}

static int __init fakegpu_init(void) {
  LIST_HEAD(resources);
  struct pci_bus* bus;
  int error = write_registers();

  if (error) return error;
  error = insert_resource(&iomem_resource, &window);
  if (error) return error;
  fill_config();
  pci_add_resource(&resources, &window);
  pci_add_resource(&resources, &buses);
  bus = pci_scan_root_bus(NULL, 0, &ops, &sysdata, &resources);
  if (!bus) {
    remove_resource(&window);
    return -ENODEV;
  }
  // Not pci_assign_unassigned_bus_resources(), which leaves out reserved memory.
  pci_bus_claim_resources(bus);
  pci_bus_add_devices(bus);
  return 0;
}
module_init(fakegpu_init);  // there is no exit, because the driver cannot let go of a broken GPU
MODULE_DESCRIPTION("A PCI function that looks like an NVIDIA GPU");
MODULE_LICENSE("GPL");
