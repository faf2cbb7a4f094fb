/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter negotiation: the symbols that a plugin's file shows to others. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "negotiation.h"

/* A file in memory. */
struct image {
    const unsigned char *bytes;
    size_t n_bytes;
};

static const void *image_at(const struct image *image, uint64_t offset, uint64_t n_bytes)
{
    return offset <= image->n_bytes && n_bytes <= image->n_bytes - offset ? image->bytes + offset
                                                                          : NULL;
}

static void image_open(struct conform *conform, struct image *ret)
{
    int fd = open(conform->plugin_path, O_RDONLY | O_CLOEXEC);
    struct stat file = {0};
    void *bytes = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &file) == 0) {
        bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    conform_expect(conform, bytes != MAP_FAILED, "the file cannot be read");
    ret->bytes = bytes;
    ret->n_bytes = (size_t)file.st_size;
}

static const ElfW(Shdr) * sections_find(const struct image *image, uint32_t *ret_n)
{
    const ElfW(Ehdr) *header = image_at(image, 0, sizeof(*header));

    if (header == NULL || header->e_shoff == 0 || header->e_shentsize != sizeof(ElfW(Shdr))) {
        return NULL;
    }
    *ret_n = header->e_shnum;
    return image_at(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(ElfW(Shdr)));
}

static bool is_exported(const ElfW(Sym) * symbol)
{
    unsigned binding = symbol->st_info >> 4; /* the same in ELF32 and ELF64 */
    unsigned visibility = symbol->st_other & 3u;

    return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS &&
           (binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE) &&
           (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

/* Every other name in the table of dynamic symbols. */
static uint32_t others_list(const struct image *image, const ElfW(Shdr) * table,
                            const ElfW(Shdr) * texts, char *ret_names, size_t max_bytes)
{
    const ElfW(Sym) *symbols = image_at(image, table->sh_offset, table->sh_size);
    const char *names = image_at(image, texts->sh_offset, texts->sh_size);
    uint32_t n = 0;
    size_t n_bytes = 0;

    for (uint64_t i = 0; symbols != NULL && names != NULL && i < table->sh_size / sizeof(*symbols);
         i++) {
        const char *name = names + (symbols[i].st_name < texts->sh_size ? symbols[i].st_name : 0);

        if (is_exported(&symbols[i]) && strcmp(name, HSDP_ENTRY_SYMBOL) != 0) {
            n_bytes += n < 5 ? (size_t)snprintf(ret_names + n_bytes, max_bytes - n_bytes, "%s%.60s",
                                                n == 0 ? "" : ", ", name)
                             : 0;
            n++;
        }
    }
    return n;
}

void exports_one_symbol(struct conform *conform)
{
    const ElfW(Shdr) * sections;
    struct image image;
    uint32_t n_sections = 0;
    char names[512] = "";

    image_open(conform, &image);
    sections = sections_find(&image, &n_sections);
    if (sections == NULL) {
        conform_skip(conform, "the file has no table of sections to read");
    }
    for (uint32_t i = 0; i < n_sections; i++) {
        uint32_t n_others;

        if (sections[i].sh_type != SHT_DYNSYM || sections[i].sh_link >= n_sections) {
            continue;
        }
        n_others =
            others_list(&image, &sections[i], &sections[sections[i].sh_link], names, sizeof(names));
        conform_expect(conform, n_others == 0,
                       "%s is the one symbol that a plugin exports; this one exports %u more: %s%s",
                       HSDP_ENTRY_SYMBOL, (unsigned)n_others, names, n_others > 5 ? ", ..." : "");
        return;
    }
    conform_skip(conform, "the file has no table of dynamic symbols");
}
