declare namespace Memory {
  interface CreateEntitiesArgs {
    entities: {
      /** The name of the entity */
      name: string;
      /** The type of the entity */
      entityType: string;
      /** An array of observation contents associated with the entity */
      observations: string[];
    }[];
  }
  interface CreateEntitiesResult {
    entities: {
      /** The name of the entity */
      name: string;
      /** The type of the entity */
      entityType: string;
      /** An array of observation contents associated with the entity */
      observations: string[];
    }[];
  }
  interface CreateRelationsArgs {
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
  interface CreateRelationsResult {
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
  interface AddObservationsArgs {
    observations: {
      /** The name of the entity to add the observations to */
      entityName: string;
      /** An array of observation contents to add */
      contents: string[];
    }[];
  }
  interface AddObservationsResult {
    results: {
      entityName: string;
      addedObservations: string[];
    }[];
  }
  interface DeleteEntitiesArgs {
    /** An array of entity names to delete */
    entityNames: string[];
  }
  interface DeleteEntitiesResult {
    success: boolean;
    message: string;
  }
  interface DeleteObservationsArgs {
    deletions: {
      /** The name of the entity containing the observations */
      entityName: string;
      /** An array of observations to delete */
      observations: string[];
    }[];
  }
  interface DeleteObservationsResult {
    success: boolean;
    message: string;
  }
  interface DeleteRelationsArgs {
    /** An array of relations to delete */
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
  interface DeleteRelationsResult {
    success: boolean;
    message: string;
  }
  interface ReadGraphArgs {
    [key: string]: unknown;
  }
  interface ReadGraphResult {
    entities: {
      /** The name of the entity */
      name: string;
      /** The type of the entity */
      entityType: string;
      /** An array of observation contents associated with the entity */
      observations: string[];
    }[];
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
  interface SearchNodesArgs {
    /** The search query to match against entity names, types, and observation content */
    query: string;
  }
  interface SearchNodesResult {
    entities: {
      /** The name of the entity */
      name: string;
      /** The type of the entity */
      entityType: string;
      /** An array of observation contents associated with the entity */
      observations: string[];
    }[];
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
  interface OpenNodesArgs {
    /** An array of entity names to retrieve */
    names: string[];
  }
  interface OpenNodesResult {
    entities: {
      /** The name of the entity */
      name: string;
      /** The type of the entity */
      entityType: string;
      /** An array of observation contents associated with the entity */
      observations: string[];
    }[];
    relations: {
      /** The name of the entity where the relation starts */
      from: string;
      /** The name of the entity where the relation ends */
      to: string;
      /** The type of the relation */
      relationType: string;
    }[];
  }
}

declare const mcp: {
  readonly memory: {
    /** Create multiple new entities in the knowledge graph */
    create_entities(args: Memory.CreateEntitiesArgs): Promise<Memory.CreateEntitiesResult>;
    /** Create multiple new relations between entities in the knowledge graph. Relations should be in active voice */
    create_relations(args: Memory.CreateRelationsArgs): Promise<Memory.CreateRelationsResult>;
    /** Add new observations to existing entities in the knowledge graph */
    add_observations(args: Memory.AddObservationsArgs): Promise<Memory.AddObservationsResult>;
    /** Delete multiple entities and their associated relations from the knowledge graph */
    delete_entities(args: Memory.DeleteEntitiesArgs): Promise<Memory.DeleteEntitiesResult>;
    /** Delete specific observations from entities in the knowledge graph */
    delete_observations(args: Memory.DeleteObservationsArgs): Promise<Memory.DeleteObservationsResult>;
    /** Delete multiple relations from the knowledge graph */
    delete_relations(args: Memory.DeleteRelationsArgs): Promise<Memory.DeleteRelationsResult>;
    /** Read the entire knowledge graph */
    read_graph(args?: Memory.ReadGraphArgs): Promise<Memory.ReadGraphResult>;
    /** Search for nodes in the knowledge graph based on a query */
    search_nodes(args: Memory.SearchNodesArgs): Promise<Memory.SearchNodesResult>;
    /** Open specific nodes in the knowledge graph by their names */
    open_nodes(args: Memory.OpenNodesArgs): Promise<Memory.OpenNodesResult>;
  };
};
declare const memory: typeof mcp.memory;
